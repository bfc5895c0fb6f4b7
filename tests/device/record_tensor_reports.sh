#!/bin/bash
# Records the reports of tests/ingest/data/tensor_*: the same launches of a training step under four sets of metrics for tensor-core use,
# as Nsight Compute writes and prints them. Run on a machine with a GPU and ncu:
#
#   tests/device/record_tensor_reports.sh BUILD OUT        # BUILD holds bin/stepscope; then copy OUT/* into tests/ingest/data
#
# tests/ingest/tensor_use_test.cpp reads them (RecordedTensor.*) and skips while they are not there.
set -euo pipefail
if [ $# -ne 2 ] || [ ! -x "$1/bin/stepscope" ]; then
  echo "usage: $0 BUILD OUT (BUILD/bin/stepscope must be there)" >&2
  exit 2
fi
program=$(realpath "$1")/bin/stepscope
mkdir -p "$2"
out=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
ncu=$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -n 1 || true)
if [ -z "$ncu" ]; then
  echo "ncu is not installed: expected it in PATH, /usr/local/cuda*/bin or /opt/nvidia/nsight-compute" >&2
  exit 3
fi

# Sixteen launches of the first forward pass: matrix products, attention, layernorm.
launches=16
pipe=sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained
cycles=gpu__time_duration.sum,sm__cycles_active.avg,sm__cycles_elapsed.max
declare -A metrics=(
  [tensor_exact]=$cycles,${pipe}_elapsed,${pipe}_active
  [tensor_active]=$cycles,${pipe}_active
  # What llm.c's profile_gpt2cu.py asks for: no cycles.
  [tensor_llmc]=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,smsp__inst_executed.sum,sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active
  [tensor_inst]=gpu__time_duration.sum,sm__inst_executed_pipe_tensor.sum
)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in tensor_exact tensor_active tensor_llmc tensor_inst; do
  echo "== $name: ${metrics[$name]}"
  "$ncu" --clock-control none --cache-control none --launch-skip 20 --launch-count $launches --metrics "${metrics[$name]}" \
    -f -o "$work/$name" "$program" train --trainer mixed --model d12 --batch-size 1 --seq-len 256 --steps 1 \
    --variant step_launch=stream >"$work/$name.log" 2>&1 || { cat "$work/$name.log" >&2; exit 1; }
  "$ncu" -i "$work/$name.ncu-rep" --csv --page raw --print-units base >"$work/$name.csv"
  # Without host name, cubins and addresses, which a repository must not carry.
  python3 "$here/../ingest/data/strip_report.py" "$work/$name.ncu-rep" "$out/$name.ncu-rep" 0 $launches \
    "$work/$name.csv" "$out/$name.raw.base.csv"
  "$program" ingest "$out/$name.ncu-rep" --out "$work/$name.json" --by kernel --top 4
done
ls -l "$out"
