"""What Python and the kernel lack for us: lazy names, threads under a memory limit, polling, masking."""
