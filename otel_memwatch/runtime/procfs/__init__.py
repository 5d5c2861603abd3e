"""Pure parsers of the kernel's files: bytes in, sizes in bytes and times in seconds out.

- `process`: files of one process
- `system`: files of the machine
- `control_group`: files of cgroups
- `drm`: files of GPUs with open drivers

`runtime.kernel` describes the kernel's units and the accuracy of its counters. Parsers open no files. They raise
`ValueError` (or `IndexError`) for text of another file. A field that a kernel lacks is `None`.
"""
