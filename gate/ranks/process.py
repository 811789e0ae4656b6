"""What a rank does: it runs the jobs that arrive, each with process groups of its own."""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import os
import pickle
import shutil
import socket
import sys
import threading
import traceback
from multiprocessing import connection, parent_process
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]

from gate.ranks.messages import Job, Rank, Reply, library, own_device

# A rank that did not come back this long after its time ends itself, whatever holds it up.
GRACE = 5.0

# What the libraries say when a peer is silent or gone: the rank itself is not at fault.
_WAITED = ("timed out", "timeout", "connection closed", "connection reset", "broken pipe")


def serve(pipe: connection.Connection, rank: int, errors: str) -> None:
    """Run jobs from the pipe until it is closed, as the process of one rank.

    An empty reply says that the rank is there; then comes one for each job.
    `errors` is the file that takes what the process writes to standard error.
    """
    os.setsid()  # whatever a job starts goes when the rank goes
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
    threading.Thread(target=_end_with_parent, args=(Path(errors).parent,), daemon=True).start()
    with Path(errors).open("ab", buffering=0) as stream:
        os.dup2(stream.fileno(), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        torch.set_num_threads(1)
        with contextlib.suppress(EOFError, OSError):
            pipe.send(Reply())
            while True:
                job, path = pipe.recv()
                store = FileStore(path, job.world)
                pipe.send(reply_to(job, rank, store, own_device(job.device, rank)))


def reply_to(job: Job, rank: int, store: Store, device: str) -> Reply:
    """Run a job as one rank of a default group of its own, made through `store`.

    The process ends itself where a job goes on long after its time.
    """
    limit = datetime.timedelta(seconds=job.seconds)
    faulthandler.dump_traceback_later(job.seconds + 2 * GRACE, exit=True)
    try:
        group = _default_group(job, rank, store, device, limit)
        reply = _run(job, rank, group, device)
    except RuntimeError as error:
        reply = failed(error)
    with contextlib.suppress(Exception):
        if reply.error is None:
            _wait_for_all(store, rank, job.world, limit)
        dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()
    return reply


def _run(job: Job, rank: int, group: dist.ProcessGroup, device: str) -> Reply:
    """Call the job's function as one rank and say what became of it."""
    try:
        result = job.function(Rank(rank, job.world, device, group), *job.arguments)
    except (Exception, SystemExit) as error:
        return failed(error)
    return Reply(result)


def failed(error: BaseException) -> Reply:
    """Return the reply for an exception, without it where it cannot be pickled."""
    words = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        words += f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})"
    waiting = ""
    if isinstance(error, RuntimeError) and waited(str(error)):
        waiting = frames[-1].name if frames else "start"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(words)
    return Reply(error=error.with_traceback(None), message=words, waiting=waiting)


def waited(message: str) -> bool:
    """True if the message of an exception tells of a peer that was silent or gone."""
    return any(words in message.lower() for words in _WAITED)


def loopback() -> str:
    """Return the name of the network interface of this machine to itself."""
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    return names[0] if names else "lo"


def _default_group(
    job: Job, rank: int, store: Store, device: str, limit: datetime.timedelta
) -> dist.ProcessGroup:
    if device != "cpu":
        getattr(torch, job.device).set_device(torch.device(device))
    dist.init_process_group(
        library(job.device), store=store, rank=rank, world_size=job.world, timeout=limit
    )
    dist.barrier()
    group = dist.group.WORLD
    assert group is not None, "init_process_group makes it"
    return group


def _wait_for_all(store: Store, rank: int, world: int, limit: datetime.timedelta) -> None:
    """Leave no group while another rank may still be reading from it, or connecting to it."""
    store.set(f"done-{rank}", "")
    store.wait([f"done-{each}" for each in range(world)], limit)


def _end_with_parent(directory: Path) -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)
