# The Julia package: its own tests, with four Julia threads. Without optimisation, because most of the time is compiling.
. "$(dirname "${BASH_SOURCE[0]}")/julia_support.sh"
JULIA_NUM_THREADS=4 "$julia" -O0 "$package/test/runtests.jl"
