"""One run on an accelerator, in eight minutes: is it right, and how fast is it beside others?

    nox -s device                       [--device cuda] [--report-dir DIR] [--seconds 480]
    nox -s device -- --device cpu       the same, small, to try the run itself

- `jobs`: what is measured, at which geometries, on which contestants.
- `measure`: the measurements of one contestant, in a process of its own.
- `goals`: the figures that the Triton backend is held to on a device.
- `session`: the steps, each with its time, and the one file that they write as they go.
- `table`: that file as a page.
"""
