#!/usr/bin/env bash
# beside_llmc.sh with stubs in the place of the compilers and of the script that measures: what is compiled, what is measured, and that nothing is
# measured where llm.c did not compile or link.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
mkdir -p "$folder/path" "$folder/tests/device" "$folder/llmc/llmc" "$folder/frontend"
cp "$here/beside_llmc.sh" "$folder/tests/device"
output='while [ $# -gt 0 ]; do [ "$1" = -o ] && touch "$2"; shift; done'
stub "$folder/path/nvcc" '[ "$1" = --version ] && { echo "release ${CUDA:-13.0}, V0"; exit 0; }
case "$*" in *warn-unresolved*) echo "ld: warning: undefined reference to \`${MISSING:-nvmlInit_v2}\`"; exit 0 ;; esac
[ -z "${NVCC_FAILS:-}" ] || exit 1
'"$output"
stub "$folder/path/g++" '[ -z "${GXX_FAILS:-}" ] || exit 1
'"$output"
stub "$folder/path/python3" 'echo "$*" >>'"$folder"'/measured; [ -z "${ENDS:-}" ]'
stub "$folder/stepscope" 'exit 0'
advice='cudaMemAdvise(*out, bytes, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId)'
touch "$folder/llmc/train_gpt2.cu" "$folder/frontend/cudnn_frontend.h" "$folder/tokens.bin"
echo "$advice" >"$folder/llmc/llmc/cuda_utils.cuh"
beside() { rm -f "$folder/measured"; PATH=$folder/path:$PATH "$folder/tests/device/beside_llmc.sh" "$@" >"$folder/said" 2>&1; }
objects() { beside objects "$folder/llmc" "$folder/frontend"; }
run() { beside run "$folder/llmc" "$folder/stepscope" "$folder/tokens.bin" "$@"; }

for wrong in "" "objects $folder/frontend $folder/frontend" "objects $folder/llmc $folder/llmc" "run $folder/llmc $folder/stepscope" "other $folder/llmc $folder/frontend"; do
  # shellcheck disable=SC2086
  beside $wrong
  [ $? = 2 ] || complain "'$wrong' does not exit 2"
done
CUDA=12.8 objects || complain "objects exits $?: $(cat "$folder/said")"
grep -qF "$advice" "$folder/llmc/llmc/cuda_utils.cuh" || complain "CUDA 12 changes a line"
objects && objects || complain "objects exits $? with CUDA 13"
grep -qF 'cudaMemLocation{cudaMemLocationTypeHost, 0})' "$folder/llmc/llmc/cuda_utils.cuh" || complain "CUDA 13 changes no line"
MISSING=nvrtcCompileProgram objects && complain "a library that is not linked is found on the GPU machine first"
for object in train cudnn_att train_without_cudnn train_fp32; do [ -f "$folder/llmc/build/$object.o" ] || complain "no $object.o"; done
run d12:4:7 d24:32:9 || complain "run exits $?: $(cat "$folder/said")"
grep -qE -- "-[vs] 0 " "$folder/measured" && complain "llm.c is given 0, by which it divides: $(head -n 1 "$folder/measured")"
[ "$(grep -c -- '--order theirs,ours,ours,theirs' "$folder/measured")" = 2 ] || complain "not two cases: $(cat "$folder/measured")"
grep -q -- "--seconds 9 .*-e d24 -b 32 -t 1024 -d 32768 .*--model d24 .*-b 32" "$folder/measured" || complain "another case than d24:32:9: $(tail -n 1 "$folder/measured")"
run d12:4:7:llmc-without-cudnn d12:4:7:pytorch d12:64:7:pytorch-graphs || complain "run of other peers exits $?: $(cat "$folder/said")"
grep -q "theirs=.*/train_gpt2cu_without_cudnn -i" "$folder/measured" || complain "llm.c without cuDNN is not measured: $(cat "$folder/measured")"
grep -q "theirs=.*pytorch_step.py --batch-size 4 .*--mode default" "$folder/measured" || complain "PyTorch is not measured: $(cat "$folder/measured")"
grep -q "theirs=.*pytorch_step.py --batch-size 64 .*--mode reduce-overhead" "$folder/measured" || complain "PyTorch with graphs is not measured: $(cat "$folder/measured")"
grep -q "tf32" "$folder/measured" && complain "the mixed trainer's peers are measured at TF32: $(cat "$folder/measured")"
run d12:4:7:llmc-tf32 d12:4:7:pytorch-tf32 d12:4:7 || complain "run at TF32 exits $?: $(cat "$folder/said")"
grep -q "theirs=.*train_gpt2cu_fp32 -i .* -f 1 ours=.*--trainer fp32 --matmul tf32 --model d12" "$folder/measured" || complain "llm.c at TF32 is not measured: $(cat "$folder/measured")"
grep -q "theirs=.*pytorch_step.py .*--tf32 .*--trainer fp32 --matmul tf32" "$folder/measured" || complain "PyTorch in TF32 is not measured: $(cat "$folder/measured")"
grep -q "train_gpt2cu .*--trainer mixed" "$folder/measured" || complain "behind TF32 bf16 is not measured: $(cat "$folder/measured")"
for wrong in d12:4:7:jax d24:32:9:pytorch d24:32:9:pytorch-tf32; do
  run d12:4:7 $wrong
  [ $? = 2 ] && [ ! -e "$folder/measured" ] || complain "$wrong is taken, or something is measured before it is refused"
done
ENDS=1 run d12:4:7 && complain "a process that ends by itself exits 0"
NVCC_FAILS=1 run d12:4:7
[ $? = 1 ] && [ ! -e "$folder/measured" ] || complain "without llm.c's program something is measured"
GXX_FAILS=1 objects && complain "cuDNN's part does not compile, exit 0"
NVCC_FAILS=1 objects && complain "the trainer does not compile, exit 0"
[ ! -e "$folder/llmc/build/train.o" ] || complain "an old object is left"
exit $problems
