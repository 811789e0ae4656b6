"""What the documentation says is held to the tree: links, snippets, commands, pictures."""
