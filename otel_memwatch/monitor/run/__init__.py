"""One run from the launch to the prompt: wrap, attach, supervision, completion."""
