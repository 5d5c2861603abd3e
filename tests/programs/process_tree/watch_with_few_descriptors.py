"""Watches the program of the argument with at most 256 open files."""

import resource
import runpy
import sys

resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.argv = ["tree_watch", '{"interval": 0.2}', "--", sys.executable, "-S", sys.argv[1]]
runpy.run_module("tests.support.tree_watch", run_name="__main__")
