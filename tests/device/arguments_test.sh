#!/usr/bin/env bash
# What the tools of this folder say of wrong arguments and files (exit 2, no traceback) and of a machine without NVML (3), and compare_with_ncu.py over made-up steps.
# usage: arguments_test.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
refused() {  # a sentence, then tool and arguments
  local sentence=$1 code
  shift
  python3 "$here/$1" "${@:2}" >"$folder/said" 2>&1
  code=$?
  [ $code = 2 ] && grep -q -- "$sentence" "$folder/said" && ! grep -q Traceback "$folder/said" || complain "$*: exit $code, expected 2 and '$sentence': $(cat "$folder/said")"
}

# Two kernels a step: 30 us with tensor cores, 5 us without; ncu saw a step before, of another grid.
cat >"$folder/profile.json" <<'P'
{"launches": [
 {"activity": "kernel", "name": "product", "grid": [4, 1, 1], "time_ns": 30000, "dram_read_bytes": 2e7, "dram_write_bytes": 1e7, "tensor_active_pct": 60.2},
 {"activity": "memset", "name": "zero"},
 {"activity": "kernel", "name": "norm", "grid": [8, 1, 1], "time_ns": 5000, "dram_read_bytes": 1e6, "dram_write_bytes": 0}]}
P
ncu() {  # the grid of the last kernel, DRAM bytes read by the product, its nanoseconds
  echo '==PROF== connected'
  echo '"ID","Process ID","Kernel Name","Grid Size","gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"'
  echo '"","","","","ns","byte","byte","%"'
  echo '"0","7","warm","(1, 1, 1)","1","1","1","0"'
  echo '"1","7","product","(4, 1, 1)","'"$3"'","'"$2"'","10,000,000","60"'
  echo '"2","7","norm","('"$1"', 1, 1)","4000","1,000,000","0","0"'
}
compare() { python3 "$here/compare_with_ncu.py" "$folder/profile.json" "$folder/ncu.csv" "$@" >"$folder/said" 2>&1; }
ncu 8 20,500,000 30,500 >"$folder/ncu.csv"
compare || complain "two kernels within the limits exit $?: $(cat "$folder/said")"
grep -q "duration > 20 us (5 %) *1 of 1 launches within" "$folder/said" || complain "the short kernel's time is compared: $(cat "$folder/said")"
ncu 8 24,000,000 30,500 >"$folder/ncu.csv"
compare && complain "4 MB more of 34 exit 0"
compare --allow 0.5 || complain "one of two outside, half of them allowed: exit $?"
ncu 8 20,500,000 33,000 >"$folder/ncu.csv"
compare && complain "9 % of time exit 0"
ncu 9 20,500,000 30,500 >"$folder/ncu.csv"
refused "launch 1: norm has grid .* not the same step" compare_with_ncu.py "$folder/profile.json" "$folder/ncu.csv"
head -4 "$folder/ncu.csv" >"$folder/short.csv"
refused "has 2 kernels a step, .* recorded 1" compare_with_ncu.py "$folder/profile.json" "$folder/short.csv"
sed 's/dram__bytes_read/dram__other/' "$folder/ncu.csv" >"$folder/other.csv"
refused "other.csv: no column dram__bytes_read.sum" compare_with_ncu.py "$folder/profile.json" "$folder/other.csv"
sed 's/"dram_read_bytes": 1e6, //' "$folder/profile.json" >"$folder/uncounted.json"
refused "uncounted.json: launch 1, norm, has no dram_read_bytes" compare_with_ncu.py "$folder/uncounted.json" "$folder/ncu.csv"
refused "profile.json: no ncu CSV table" compare_with_ncu.py "$folder/profile.json" "$folder/profile.json"
refused "none.json: No such file" compare_with_ncu.py "$folder/none.json" "$folder/ncu.csv"
refused "ncu.csv: .*expected a profile document" compare_with_ncu.py "$folder/ncu.csv" "$folder/ncu.csv"

refused "'./train': expected NAME=COMMAND" alone_in_turns.py ./train
refused "--order names c" alone_in_turns.py a=true --order a,c
: >"$folder/libnvidia-ml.so.1"
LD_LIBRARY_PATH=$folder python3 "$here/alone_in_turns.py" a=true >"$folder/said" 2>&1
code=$?
[ $code = 3 ] && grep -q "NVML cannot be loaded: .*libnvidia-ml" "$folder/said" || complain "without NVML: exit $code, expected 3: $(cat "$folder/said")"
# A counter that moves every 100 ms at 500 W, and steps of 3 ms: 1.5 J each, also over half a second, in which a step of the counter is a fifth.
cat >"$folder/nvml.cpp" <<'P'
#include <chrono>
#include <cstdlib>
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) { return *device = nullptr, 0; }
int nvmlDeviceGetClockInfo(void*, int, unsigned* mhz) { return *mhz = 1500, 0; }
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* mj) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  static const auto first = now;
  if (std::getenv("NVML_LOSES_ITS_GPU") != nullptr && now - first > std::chrono::milliseconds(300)) return 15;
  return *mj = 50000ull * static_cast<unsigned long long>(now / std::chrono::milliseconds(100)), 0;
}
}
P
g++ -shared -fPIC -o "$folder/libnvidia-ml.so.1" "$folder/nvml.cpp" || complain "the made-up NVML does not compile"
cat >"$folder/train.py" <<'P'
import time
begin = time.monotonic()
for step in range(1, 10000):
    time.sleep(max(0, begin + step * 0.003 - time.monotonic()))
    print("step", step, flush=True)
P
for seconds in 1.0 1.1; do
  LD_LIBRARY_PATH=$folder python3 "$here/alone_in_turns.py" --seconds $seconds --order a "a=python3 $folder/train.py" >"$folder/said" 2>&1 || complain "a made-up GPU: exit $?: $(cat "$folder/said")"
  awk '$1 == "a" && $3 == "ms" { watts = $4 / $2 * 1000 } END { exit watts < 480 || watts > 520 }' "$folder/said" ||
    complain "500 W in $seconds s: $(cat "$folder/said")"
done
LD_LIBRARY_PATH=$folder python3 "$here/alone_in_turns.py" --seconds 0.16 --order a "a=python3 $folder/train.py" >"$folder/said" 2>&1
code=$?
[ $code = 1 ] && grep -q "the energy counter moved less than twice" "$folder/said" || complain "0.08 s of a counter: exit $code, expected 1: $(cat "$folder/said")"
NVML_LOSES_ITS_GPU=1 LD_LIBRARY_PATH=$folder python3 "$here/alone_in_turns.py" --seconds 1 --order a "a=python3 $folder/train.py" >"$folder/said" 2>&1
code=$?
[ $code = 3 ] && grep -q "nvmlDeviceGetTotalEnergyConsumption failed with 15" "$folder/said" && ! grep -q Traceback "$folder/said" ||
  complain "NVML fails in between: exit $code, expected 3: $(cat "$folder/said")"
refused "'fast': expected some of kill" rank_failures.py true --ways fast --rounds 1 -- --trainer reference
refused "'mixed': expected TRAINER:BATCH" ranks_evidence.py true --out "$folder/out" --cases mixed
refused "'four': expected a number" ranks_evidence.py true --out "$folder/out" --batches four
exit $problems
