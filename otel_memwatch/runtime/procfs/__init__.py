"""Pure parsers of the kernel's files: bytes in, sizes in bytes and times in seconds out.

`process` parses the files of one process, `system` those of the machine, `control_group` those of cgroups, `drm` those of
GPUs with open drivers. The kernel's units, and how accurate its counters are, stand in `runtime.kernel`. Nothing here
opens a file. A parser raises `ValueError` (or
`IndexError`) for text that is not of its file; a field that a kernel does not have is `None`.
"""
