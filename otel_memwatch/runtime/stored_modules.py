"""Empty module. The file for its bytecode holds that of all modules (`module_store.py`).

Package managers remove the bytecode of a module with the module. A file of another name would stay after an uninstallation,
and its folder would be importable.
"""
