#!/usr/bin/env bash
# Warm step time and joules of our trainers beside llm.c's and PyTorch's, fresh processes alone in turns: the tables of
# docs/study/mixed-precision.md and docs/study/fp32-tensor-cores.md.
#   beside_llmc.sh objects LLMC FRONTEND               compiles LLMC's trainer for sm_90, in bf16 with cuDNN and without and in fp32, into LLMC/build. Needs
#                                                      nvcc, cudnn.h and the include folder of cuDNN's frontend, but no GPU: do it before a machine is lent, it takes minutes
#   beside_llmc.sh run LLMC STEPSCOPE TOKENS [CASE…]   links and measures. STEPSCOPE: our program. TOKENS: a shard that both train on. A CASE is
#                                                      MODEL:B:SECONDS[:PEER]; default d12:4:11 d12:16:11 d12:64:15 d24:32:15, four processes each
# PEER: llmc (with cuDNN, unless told), llmc-without-cudnn, pytorch (compiled) or pytorch-graphs (compiled with CUDA graphs); beside the fp32 trainer at
# TF32: llmc-tf32 or pytorch-tf32 (compiled). PyTorch trains d12 alone.
# LLMC is a checkout of llm.c. With CUDA 13 one line of it is changed in place: cudaMemAdvise takes a cudaMemLocation there.
# Exit 1: it does not compile or link, or a process ended by itself. 2: wrong arguments.
set -u
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '4,9s/^# *//p' "$0" >&2; exit 2; }
[ $# -ge 3 ] && [ -f "$2/train_gpt2.cu" ] || usage
llmc=$(cd "$2" && pwd)
cuda=$(dirname "$(dirname "$(command -v nvcc)")")
# cuDNN's frontend calls NVRTC. The library that comes with the driver is often there without the name that the linker wants.
with_cudnn=(build/train.o build/cudnn_att.o -o build/train_gpt2cu "-L$cuda/lib64/stubs" -lcublas -lcublasLt -lcudnn -lnvrtc)
without_cudnn=(build/train_without_cudnn.o -o build/train_gpt2cu_without_cudnn "-L$cuda/lib64/stubs" -lcublas -lcublasLt)
fp32=(build/train_fp32.o -o build/train_gpt2cu_fp32 "-L$cuda/lib64/stubs" -lcublas -lcublasLt)

case $1 in
objects)
  [ $# = 3 ] && [ -f "$3/cudnn_frontend.h" ] || usage
  frontend=$(cd "$3" && pwd)
  if nvcc --version | grep -qE "release 1[3-9]"; then
    sed -i 's/cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId)/cudaMemAdviseSetPreferredLocation, cudaMemLocation{cudaMemLocationTypeHost, 0})/' "$llmc/llmc/cuda_utils.cuh"
  fi
  mkdir -p "$llmc/build" && rm -f "$llmc"/build/*.o && cd "$llmc" || exit 1
  g++ -O3 -std=c++17 -DENABLE_BF16 -DENABLE_CUDNN "-I$frontend" "-I$cuda/include" -c llmc/cudnn_att.cpp -o build/cudnn_att.o &
  nvcc -O3 --use_fast_math -std=c++17 -gencode arch=compute_90,code=sm_90 -DENABLE_BF16 -DENABLE_CUDNN -c train_gpt2.cu -o build/train.o
  compiled=$?
  nvcc -O3 --use_fast_math -std=c++17 -gencode arch=compute_90,code=sm_90 -DENABLE_BF16 -c train_gpt2.cu -o build/train_without_cudnn.o || compiled=1
  nvcc -O3 --use_fast_math -std=c++17 -gencode arch=compute_90,code=sm_90 -DENABLE_FP32 -c train_gpt2.cu -o build/train_fp32.o || compiled=1
  wait $! && [ $compiled = 0 ] || exit 1
  # Without a driver the linker finds no function of NVML, and must find all others.
  missing=$({ nvcc "${with_cudnn[@]}" -Xlinker --warn-unresolved-symbols; nvcc "${without_cudnn[@]}" -Xlinker --warn-unresolved-symbols
    nvcc "${fp32[@]}" -Xlinker --warn-unresolved-symbols; } 2>&1 |
    grep -vE 'In function|nvml[A-Z]' | grep -E 'undefined reference|cannot find|error')
  rm -f build/train_gpt2cu build/train_gpt2cu_without_cudnn build/train_gpt2cu_fp32
  [ -z "$missing" ] || { echo "beside_llmc.sh: llm.c would not link: $missing" >&2; exit 1; }
  ;;
run)
  [ $# -ge 4 ] && [ -x "$3" ] && [ -f "$4" ] || usage
  ours=$3 tokens=$4
  shift 4
  [ $# -gt 0 ] || set -- d12:4:11 d12:16:11 d12:64:15 d24:32:15
  for size; do
    IFS=: read -r model batch seconds peer <<<"$size"
    case ${peer:-llmc} in
    llmc | llmc-without-cudnn | llmc-tf32) ;;
    pytorch | pytorch-graphs | pytorch-tf32) [ "$model" = d12 ] || { echo "beside_llmc.sh: $size: $peer trains d12 alone" >&2; exit 2; } ;;
    *) usage ;;
    esac
  done
  (cd "$llmc" && nvcc "${with_cudnn[@]}" -lnvidia-ml && nvcc "${without_cudnn[@]}" -lnvidia-ml && nvcc "${fp32[@]}" -lnvidia-ml) || exit 1
  failed=0
  for size; do
    IFS=: read -r model batch seconds peer <<<"$size"
    echo "$model B=$batch ${peer:-llmc}"
    # llm.c divides by -v, so 0 is the end of it; it evaluates after as many steps, and at the first.
    flags="-i $tokens -j $tokens -e $model -b $batch -t 1024 -d $((batch * 1024)) -r 0 -ge 2 -v 1000000 -s 1000000 -h 0 -x 1000000"
    pytorch="python3 -u $here/pytorch_step.py --batch-size $batch --data $tokens --steps 1000000 --mode"
    ours_is=mixed
    case ${peer:-llmc} in
    llmc) theirs="$llmc/build/train_gpt2cu $flags" ;;
    llmc-without-cudnn) theirs="$llmc/build/train_gpt2cu_without_cudnn $flags" ;;
    pytorch) theirs="$pytorch default" ;;
    pytorch-graphs) theirs="$pytorch reduce-overhead" ;;
    pytorch-tf32) theirs="$pytorch default --tf32" ours_is="fp32 --matmul tf32" ;;
    llmc-tf32) theirs="$llmc/build/train_gpt2cu_fp32 $flags -f 1" ours_is="fp32 --matmul tf32" ;;
    esac
    python3 "$here/alone_in_turns.py" --seconds "$seconds" --order theirs,ours,ours,theirs "theirs=$theirs" \
      "ours=$ours train --trainer $ours_is --model $model --data $tokens -b $batch -t 1024 --steps 1000000" || failed=1
  done
  exit $failed
  ;;
*) usage ;;
esac
