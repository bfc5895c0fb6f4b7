#!/usr/bin/env bash
# ./stepscope itself, with stubs for cmake and ninja: what it says and does on a tree that was moved, a folder of another preset, without
# its tools.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
. "$here/tests/in_folder.sh"
complain() {
  echo "launcher_test: $*; it said:"
  sed 's/^/  /' "$folder/said"
  problems=1
}
tools="$folder/tools"
mkdir -p "$tools" "$folder/a tree"
cp "$here/stepscope" "$folder/a tree/"
# A cmake that keeps what the launcher looks at, and a ninja whose program names the tree that it was configured for.
cat >"$tools/cmake" <<'STUB'
#!/usr/bin/env bash
cuda=ON architectures='80-real;90' compile_only=OFF compiler=
while [ $# -gt 0 ]; do
  case $1 in
    -B) build=$2; shift ;;
    -DSTEPSCOPE_CUDA=*) cuda=${1#*=} ;;
    -DSTEPSCOPE_CUDA_ARCHITECTURES=*) architectures=${1#*=} ;;
    -DSTEPSCOPE_COMPILE_ONLY=*) compile_only=${1#*=} ;;
    -DCMAKE_CXX_COMPILER=*) compiler=${1#*=} ;;
  esac
  shift
done
[ -z "${FAIL_CMAKE:-}" ] || { echo "CMake Error: the C++ compiler is broken"; exit 1; }
# As the real one, it keeps a compiler that it does not find, and asks for that one again.
compiler=${compiler:-$(sed -n 's/^CMAKE_CXX_COMPILER:STRING=//p' "$build/CMakeCache.txt" 2>/dev/null)}
printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\nSTEPSCOPE_CUDA:BOOL=%s\nSTEPSCOPE_CUDA_ARCHITECTURES:STRING=%s\nSTEPSCOPE_COMPILE_ONLY:BOOL=%s\nCMAKE_CXX_COMPILER:STRING=%s\n' \
  "$PWD" "$cuda" "$architectures" "$compile_only" "$compiler" >"$build/CMakeCache.txt"
[ -z "$compiler" ] || { rm -rf "$build/CMakeFiles"; echo "CMake Error: no compiler $compiler"; exit 1; }
touch "$build/build.ninja" "$build/CTestTestfile.cmake"
[ -z "${NINJA_FILE:-}" ] || cp "$NINJA_FILE" "$build/build.ninja"
STUB
cat >"$tools/ninja" <<'STUB'
#!/usr/bin/env bash
mkdir -p "$2/bin"
echo begins >>"$2/ninjas"
echo "$4" >"$2/jobs"
[ -z "${ERRORS:-}" ] || { echo "${NINJA_STATUS}FAILED: a.o" && for ((i = 0; i < ERRORS; i++)); do printf 'a.cpp:%4000d: error: b\n' $i; done; exit 1; }
[ -z "${KILLED:-}" ] || exit 137
sleep "${BUILDS_S:-0}"
echo ends >>"$2/ninjas"
[ -z "${WARNINGS:-}" ] || printf "$WARNINGS"
case " $* " in *" stepscope_first "*) name=stepscope-first ;; *" stepscope_host "*) name=stepscope-host ;; *) name=stepscope ;; esac
printf '#!/bin/sh\necho "%s built for %s, spins $GOMP_SPINCOUNT"\n' "$name" "$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$2/CMakeCache.txt")" >"$2/bin/$name"
chmod +x "$2/bin/$name"
STUB
cat >"$tools/ctest" <<'STUB'
#!/usr/bin/env bash
case " $* " in *" -N "*) echo "Total Tests: ${LONG_TESTS:-0}"; echo "ctest lists:${*:3}."; exit ;; esac
case " $* " in *" --resource-spec-file $2/gpu_slots.json "*) echo "ctest shares the GPU" ;; esac
echo "ctest waits $OMP_WAIT_POLICY with $OMP_NUM_THREADS threads"
while [ "$1" != --output-junit ]; do shift; done
echo "ctest got:${*:3}."
printf '<testsuite\n tests="7"\n failures="1"\n skipped="2"\n disabled="1"\n>\n' >"$2"
for why in "${NOT_RUN:-SKIP_RETURN_CODE=77}" SKIP_REGULAR_EXPRESSION_MATCHED; do printf '\t\t<skipped message="%s"/>\n' "$why"; done >>"$2"
STUB
printf '#!/bin/sh\nexec cat >/dev/null\n' >"$tools/g++"  # it finds every header
for tool in protoc git nvcc; do printf '#!/bin/sh\nexit 0\n' >"$tools/$tool"; done
chmod +x "$tools"/*
for tool in bash sh env sed grep cat mkdir rm mv tail nproc id dirname sleep printf touch chmod timeout sort paste tr wc head readlink flock awk cp; do
  ln -s "$(command -v $tool)" "$tools/$tool" 2>/dev/null
done
# launch TREE [NAME=VALUE…]: only the tools above are in its PATH.
launch() {
  local tree=$1
  shift
  (cd "${from:-$tree}" && env -i PATH="$tools" HOME="$folder" STEPSCOPE_OFFLINE=1 STEPSCOPE_CUDA=OFF "$@" "$tree/stepscope" "${command:-doctor}" ${arguments:-}) >"$folder/said" 2>&1
}
says() { grep -qF -- "$1" "$folder/said"; }

launch "$folder/a tree" && says "built for $folder/a tree" || complain "a tree with a space in its path does not build"
says "spins 1000" || complain "threads of a CPU step wait for each other as libgomp likes"
launch "$folder/a tree" OMP_NUM_THREADS=64 OMP_THREAD_LIMIT=1 && [ "$(cat "$folder/a tree/build/host/jobs")" = $(($(env -i "$tools/nproc") + 1)) ] ||
  complain "threads of a program that trains are taken for this machine's cores: $(cat "$folder/a tree/build/host/jobs") jobs"
launch "$folder/a tree" GOMP_SPINCOUNT=7 && says "spins 7" || complain "GOMP_SPINCOUNT of the caller is not kept"
launch "$folder/a tree" && ! says configuring || complain "the second call configures again"

cp -r "$folder/a tree" "$folder/copy"
launch "$folder/copy" && says "built for $folder/copy" && says "was made for $folder/a tree" || complain "a copied tree builds the other one"
ln -s "$folder/copy" "$folder/link"
launch "$folder/link" && ! says configuring || complain "a tree reached by a link is configured anew"
mv "$folder/copy" "$folder/moved"
launch "$folder/moved" && says "built for $folder/moved" || complain "a moved tree does not build"

mkdir "$folder/linked"
ln -s "$folder/moved/stepscope" "$folder/linked/stepscope"
launch "$folder/linked" && says "built for $folder/moved" && [ ! -e "$folder/linked/build" ] || complain "a link to the launcher does not find its tree"
(cd "$folder" && env -i PATH="$tools" HOME="$folder" CDPATH="$folder" STEPSCOPE_OFFLINE=1 STEPSCOPE_CUDA=OFF moved/stepscope doctor) >"$folder/said" 2>&1 &&
  says "built for $folder/moved" || complain "an exported CDPATH is taken for a part of the tree's path"
launch "$folder/moved" STEPSCOPE_CMAKE_FLAGS=-DA=1 && says configuring || complain "other flags for cmake do not configure again"
launch "$folder/moved" STEPSCOPE_CMAKE_FLAGS=-DA=1 && ! says configuring || complain "the same flags for cmake configure again"
launch "$folder/moved" && ! says configuring || complain "no flags for cmake configure again"
rm "$folder/moved/build/host/ninjas"
env -i PATH="$tools" HOME="$folder" STEPSCOPE_OFFLINE=1 STEPSCOPE_CUDA=OFF BUILDS_S=1 "$folder/moved/stepscope" doctor >/dev/null 2>&1 &
until [ -s "$folder/moved/build/host/ninjas" ]; do sleep 0.02; done
launch "$folder/moved" && says "another ./stepscope builds in $folder/moved/build/host: waiting for it" || complain "two builds in one folder do not wait for each other"
wait
[ "$(tr '\n' ' ' <"$folder/moved/build/host/ninjas")" = "begins ends begins ends " ] || complain "two builds in one folder run at once"

launch "$folder/moved" STEPSCOPE_BUILD_DIR="$folder/moved/build/host" STEPSCOPE_CUDA=ON && says "configuring (release)" ||
  complain "a folder that was built without CUDA is taken for one with it"
from=$folder launch "$folder/moved" STEPSCOPE_BUILD_DIR=elsewhere && [ -x "$folder/elsewhere/bin/stepscope" ] ||
  complain "a relative STEPSCOPE_BUILD_DIR is not below the folder of the call"
# Tests end with their count, and say before it what CI would refuse: warnings of g++ and of nvcc, but not the four that are no errors there.
command=test launch "$folder/moved" WARNINGS='a.cpp:3:22: warning: unused [-Wunused]\nb.cu(9): warning #177-D: c\nc.h:1:2: warning: d [-Wrestrict]\nld: warning: e\n'
[ $? = 1 ] && says "2 warnings of the compiler, each an error in CI" && says "a.cpp:3:22" && says "b.cu(9)" && ! says "c.h:1:2" && ! says "ld: warning" &&
  [ "$(tail -1 "$folder/said")" = "3 passed, 1 failed, 3 skipped" ] || complain "tests do not end with what CI refuses and with their count"
command=test launch "$folder/moved" NOT_RUN='Fixture dependency failed'
[ "$(tail -1 "$folder/said")" = "3 passed, 2 failed, 2 skipped" ] || complain "a test that ctest could not start is counted as skipped"
command=test launch "$folder/moved"
! says warning || complain "a build without warnings is said to have some"
! says "left out" || complain "tests are said to be left out where none is long"
says "ctest waits passive with 2 threads" || complain "threads of tests that run beside each other spin while they wait, or are as many as cores"
says "ctest shares the GPU" || complain "ctest is not told how many tests share the GPU"
# Long tests are left out and counted, but not in CI and not when the caller chose.
command=test launch "$folder/moved" LONG_TESTS=6
says "ctest got:-LE ^long$." && says "6 long tests of the GPU were left out; ./stepscope test --long runs them too" ||
  complain "long tests are not left out, or nothing says so"
command=test launch "$folder/moved" LONG_TESTS=6 CI=true
says "ctest got:." && ! says "left out" || complain "CI leaves long tests out"
arguments=--long command=test launch "$folder/moved" LONG_TESTS=6
says "ctest got:." && ! says "left out" || complain "--long leaves long tests out, or reaches ctest"
arguments='-R Gate -j2' command=test launch "$folder/moved" LONG_TESTS=6
says "ctest got:-R Gate -j2." && ! says "left out" || complain "a caller who chose tests gets others"
arguments='--long -N -R Gate' command=test launch "$folder/moved" && says "ctest lists:-N -R Gate." && ! says "no result" ||
  complain "tests cannot be listed"
# What ctest does not know it ignores, and runs all tests; a build of minutes stands before that.
rm "$folder/moved/build/host/ninjas"
while read -r wrong given; do
  arguments=$given command=test launch "$folder/moved"
  [ $? = 2 ] && says "stepscope: test $wrong: expected --long alone or in front, or arguments of ctest such as" || complain "test $given is not refused"
done <<'GIVEN'
-RGate -RGate
--lnog --lnog
Gate -V Gate
--long -V --long
--output-junit -R Gate --output-junit x
GIVEN
arguments=-R command=test launch "$folder/moved"
[ $? = 2 ] && says "stepscope: test -R: expected a value behind it" || complain "test -R without a value is not refused"
[ ! -e "$folder/moved/build/host/ninjas" ] || complain "wrong arguments are refused behind the build"
# A word that is no command is told before the first build; the list is that of the sources, all of it.
mkdir "$folder/moved/cli"
cp "$here/cli/every_command.cpp" "$folder/moved/cli/"
command=reprot launch "$folder/moved" STEPSCOPE_BUILD_DIR="$folder/unbuilt"
[ $? = 2 ] && says "stepscope: unknown command 'reprot'; expected test or one of doctor train " && [ ! -e "$folder/unbuilt" ] ||
  complain "a word that is no command is built for"
[ "$(sed 's/.* one of //' "$folder/said" | wc -w)" = "$(grep -c '^void add_.*_command(' "$here/cli/commands.h")" ] ||
  complain "not every command is known before a build"
command=report launch "$folder/moved" STEPSCOPE_BUILD_DIR="$folder/unbuilt" && says "built for" || complain "a command is taken for none"
command=reprot launch "$folder/moved" STEPSCOPE_BUILD_DIR="$folder/unbuilt" && says "built for" || complain "the launcher judges a word where a program could"
arguments=-N command=test launch "$folder/moved" STEPSCOPE_BUILD_DIR="$folder/unbuilt2" && says "ctest lists" || complain "test is taken for no command"
# With a GPU the first table comes from a smaller program; once there is the whole one, it is built and run.
on_gpu() { command=$1 launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/gpu" STEPSCOPE_CUDA="${cuda-}" "${@:2}"; }
printf '#!/bin/sh\necho 9.0\n' >"$tools/nvidia-smi"
chmod +x "$tools/nvidia-smi"
on_gpu profile && says "stepscope-first built for" || complain "the first profile on a machine with a GPU builds another program than stepscope-first"
on_gpu gate STEPSCOPE_NO_BUILD=1 && says "stepscope-first built for" || complain "STEPSCOPE_NO_BUILD does not run the first program"
on_gpu gate && says "stepscope built for" || complain "gate on a machine with a GPU does not build the whole program"
on_gpu profile && says "stepscope built for" || complain "profile does not run the whole program that is there"
# A folder that STEPSCOPE_CUDA=ON made for several kinds of GPU stays as it is where one of them is; one for another kind, or for none, does not.
rm -r "$folder/gpu"
mv "$tools/nvidia-smi" "$folder/nvidia-smi"
cuda=ON on_gpu gate && says configuring && ! says "device code for" || complain "STEPSCOPE_CUDA=ON without a GPU builds nothing"
mv "$folder/nvidia-smi" "$tools/nvidia-smi"
on_gpu gate && ! says configuring || complain "a folder for several kinds of GPU is built anew where one of them is"
sed -i s/COMPILE_ONLY:BOOL=OFF/COMPILE_ONLY:BOOL=ON/ "$folder/gpu/CMakeCache.txt"
on_gpu gate && says "configuring (release, device code for 90-real)" || complain "what was only compiled is taken for what runs on a GPU"
printf '#!/bin/sh\necho 8.0\necho 9.0\n' >"$tools/nvidia-smi"
on_gpu gate && says "configuring (release, device code for 80-real;90-real)" || complain "a folder for another GPU is taken for one for this machine's"
printf '#!/bin/sh\necho 7.5\n' >"$tools/nvidia-smi"
rm -r "$folder/gpu"
on_gpu gate && says "need a GPU of compute capability 8.0 or newer, and here it is 7.5: building as without a GPU" && ! says "device code for" ||
  complain "device code is compiled for a GPU that it cannot run on"
printf '#!/bin/sh\necho 9.0\n' >"$tools/nvidia-smi"
rm -r "$folder/gpu"
on_gpu train && says "stepscope-first built for" && [ ! -e "$folder/gpu/bin/stepscope" ] || complain "the first train builds more than stepscope-first"
rm "$tools/nvidia-smi"
launch "$folder/moved" STEPSCOPE_CUDA=yes
[ $? = 2 ] && says "STEPSCOPE_CUDA=yes: expected ON or OFF" || complain "STEPSCOPE_CUDA=yes is not refused"
rm "$tools/nvcc"
if [ ! -x /usr/local/cuda/bin/nvcc ]; then
  launch "$folder/moved" STEPSCOPE_CUDA=ON
  [ $? = 3 ] && says "no nvcc" || complain "STEPSCOPE_CUDA=ON without nvcc is not refused"
fi

launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/fresh" FAIL_CMAKE=1
[ $? = 3 ] && says "the C++ compiler is broken" && says "cmake failed" || complain "a cmake that fails does not say why"
# A call that named a compiler which is not there does not fail the calls behind it, in a new folder and in one that was built.
for round in 1 2; do
  launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/fresh" STEPSCOPE_CMAKE_FLAGS=-DCMAKE_CXX_COMPILER=clang++-99
  [ $? = 3 ] && says "no compiler clang++-99" || complain "a compiler that is not there is not named ($round)"
  launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/fresh" && says "built for" || complain "a compiler that was not there is asked for again ($round)"
done
# However many errors a build has, and where it has none because ninja was killed, the last line says that it failed and where its log is.
for failure in ERRORS=1 ERRORS=200 KILLED=1; do
  launch "$folder/a tree" "$failure" NINJA_STATUS='%p '
  [ $? = 2 ] && [ "$(tail -1 "$folder/said")" = "stepscope: the build failed (whole log: $folder/a tree/build/host/build.log)" ] ||
    complain "a build that fails ($failure) does not end with that"
done
launch "$folder/a tree" ERRORS=1 NINJA_STATUS='%p '
says "[%f/%t] FAILED" || complain "ninja's progress has the caller's form, which the launcher does not read"
# What takes longest stands right behind the rules, and nothing is lost: ninja begins there.
block() { printf 'build %s/%s: RULE %s || %s\n  FLAGS = -O0\n\n' "$@"; }
{
  printf 'include CMakeFiles/rules.ninja\n\n'
  block gpt2/CMakeFiles/gpt2_ops.dir encoder.cu.o encoder.cu mixed/CMakeFiles/mixed_trainer.dir/attention_cudnn.cpp.o
  block mixed/CMakeFiles/mixed_trainer.dir attention_cudnn.cpp.o attention_cudnn.cpp order
  block tests/CMakeFiles/stepscope_test_pch.dir cmake_pch.hxx.gch cmake_pch.hxx.cxx order
  block tests/base/CMakeFiles/test_base.dir Unity/unity_0_cxx.cxx.o unity_0_cxx.cxx tests/CMakeFiles/stepscope_test_pch.dir/cmake_pch.hxx.gch
} >"$folder/some.ninja"
launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/ordered" NINJA_FILE="$folder/some.ninja" || complain "a build.ninja with blocks does not build"
order=$(sed -n 's/^build \([^:]*\):.*/\1/p' "$folder/ordered/build.ninja" | xargs -n1 basename | paste -sd ' ')
[ "$order" = "attention_cudnn.cpp.o cmake_pch.hxx.gch encoder.cu.o unity_0_cxx.cxx.o" ] || complain "the order of build.ninja is '$order'"
[ "$(grep -v '^$' "$folder/some.ninja" | sort)" = "$(grep -v '^$' "$folder/ordered/build.ninja" | sort)" ] || complain "lines of build.ninja were lost"

touch "$folder/file"
launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/file/build"
[ $? = 3 ] && says "$folder/file/build cannot be written: STEPSCOPE_BUILD_DIR=FOLDER builds elsewhere" ||
  complain "a folder that cannot be made is not named"
launch "$folder/moved" STEPSCOPE_BUILD_DIR="$folder/file"
[ $? = 3 ] && says "$folder/file cannot be written: STEPSCOPE_BUILD_DIR=FOLDER builds elsewhere" || complain "a file is taken for a folder to build in"
command=test launch "$folder/moved" STEPSCOPE_NO_BUILD=1 STEPSCOPE_BUILD_DIR="$folder/nowhere"
[ $? = 3 ] && says "$folder/nowhere holds no tests" || complain "test without a build does not say what is missing"
# A compiler that finds one header: the packages of all others are named.
mkdir -p "$folder/include/fmt"
touch "$folder/include/fmt/core.h"
printf '#!/bin/sh\nPATH=%s exec %s -nostdinc -nostdinc++ -I"%s" "$@"\n' "$PATH" "$(command -v g++)" "$folder/include" >"$tools/g++"
launch "$folder/a tree" STEPSCOPE_BUILD_DIR="$folder/bare"
[ $? = 3 ] && says "apt-get install libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev libyaml-cpp-dev libboost-dev libprotobuf-dev" ||
  complain "headers that the compiler does not find are not named"
says libsqlite3-dev && says libicu-dev || complain "headers of optional packages that the compiler does not find are not named"
! says libfmt-dev || complain "a header that the compiler finds is called missing"
printf '#!/bin/sh\nexec cat >/dev/null\n' >"$tools/g++"
rm "$tools/ninja"
launch "$folder/moved"
[ $? = 3 ] && says "apt-get install ninja-build" || complain "a ninja that is gone is not named"
launch "$folder/moved" STEPSCOPE_NO_BUILD=1 && says "built for" || complain "STEPSCOPE_NO_BUILD does not run what is built"
exit $problems
