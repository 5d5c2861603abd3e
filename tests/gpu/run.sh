#!/bin/sh
# Measures the claims about GPUs on this machine and prints a table. Needs python3 with PyTorch, and nvidia-ml-py for the
# claims about whole devices; what is missing is said. The product runs from this checkout.
#
#   sh tests/gpu/run.sh [PYTHON]
set -eu
cd "$(dirname "$0")/../.."
exec "${1:-python3}" -m tests.gpu.claims
