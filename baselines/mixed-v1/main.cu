// baseline-mixed-v1: trains a GPT-2 in mixed precision (bf16, with fp32 master weights and fp32 sums) on one
// GPU, plainly. The program a student starts from and every later trainer is held against; it is frozen
// (MANIFEST.json) and includes nothing from outside its folder but CUDA, cuBLAS, cuBLASLt and NVTX.
//
// Exit codes: 0 done · 1 the loss is no longer finite · 2 a flag or a file is wrong · 3 this machine cannot
// (no GPU, no memory). A step's time runs from the choice of its batch to the end of its last kernel, as seen
// by the host.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model.cuh"

namespace {

using namespace baseline;

struct Options {
  std::string model = "d12";
  std::string data = "synthetic";
  int64_t batch_size = 4;
  int64_t seq_len = 1024;
  int64_t steps = 50;
  double learning_rate = 3e-4;
  double weight_decay = 0.0;
  double clip = 1.0;
  int64_t seed = 1337;
  std::string dump_state;
  std::string write_model;
};

const char kHelp[] =
    R"(baseline-mixed-v1: trains a GPT-2 in plain mixed precision (bf16, fp32 master weights) on one GPU

  --model NAME|FILE     d12 (default), d24, d36, d48 from scratch, or an llm.c checkpoint (version 3)
  --data synthetic|FILE token shard, or a state file, whose one batch is then used in every step (default synthetic)
  --batch-size B        sequences in a batch (default 4)
  --seq-len T           tokens in a sequence (default 1024)
  --steps N             optimizer steps (default 50)
  --learning-rate X     constant (default 3e-4)
  --weight-decay X      of matrices only (default 0)
  --clip X              largest gradient norm, 0 = any (default 1)
  --seed S              of the initial parameters and the synthetic tokens (default 1337)
  --dump-state FILE     write loss, logits and gradients of the first batch, before any update, as an llm.c state file
  --write-model FILE    write the parameters that training starts from, as an llm.c checkpoint

  baseline-mixed-v1 --batch-size 8 --steps 20
  baseline-mixed-v1 --model gpt2_124M.bin --data shakespeare.bin --dump-state state.bin --steps 0
)";

int64_t whole_number(const std::string& flag, const std::string& text, int64_t least, int64_t most) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || value < least || value > most) {
    throw InputError(flag + ": '" + text + "' is not a whole number from " + std::to_string(least) + " to " +
                     std::to_string(most));
  }
  return value;
}

double real_number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0.0 && value <= 1e6)) {
    throw InputError(flag + ": '" + text + "' is not a number from 0 to 1e6");
  }
  return value;
}

// False: help was asked for and printed.
bool parse(int argc, char** argv, Options& o) {
  const std::map<std::string, std::function<void(const std::string& flag, const std::string& value)>> flags =
      {
          {"--model", [&](auto&, auto& v) { o.model = v; }},
          {"--data", [&](auto&, auto& v) { o.data = v; }},
          {"--batch-size", [&](auto& f, auto& v) { o.batch_size = whole_number(f, v, 1, 1 << 20); }},
          {"--seq-len", [&](auto& f, auto& v) { o.seq_len = whole_number(f, v, 1, 1 << 20); }},
          {"--steps", [&](auto& f, auto& v) { o.steps = whole_number(f, v, 0, 1 << 30); }},
          {"--learning-rate", [&](auto& f, auto& v) { o.learning_rate = real_number(f, v); }},
          {"--weight-decay", [&](auto& f, auto& v) { o.weight_decay = real_number(f, v); }},
          {"--clip", [&](auto& f, auto& v) { o.clip = real_number(f, v); }},
          {"--seed", [&](auto& f, auto& v) { o.seed = whole_number(f, v, 0, INT64_MAX); }},
          {"--dump-state", [&](auto&, auto& v) { o.dump_state = v; }},
          {"--write-model", [&](auto&, auto& v) { o.write_model = v; }},
      };
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::fputs(kHelp, stdout);
      return false;
    }
    const auto known = flags.find(flag);
    if (known == flags.end())
      throw InputError("'" + flag + "' is not a flag of baseline-mixed-v1; --help lists them");
    if (i + 1 == argc) throw InputError(flag + " needs a value");
    known->second(flag, argv[++i]);
  }
  constexpr int64_t kMostTokens = int64_t{1} << 22;
  if (o.batch_size * o.seq_len > kMostTokens) {
    throw InputError("--batch-size " + std::to_string(o.batch_size) + " times --seq-len " +
                     std::to_string(o.seq_len) + " is more than " + std::to_string(kMostTokens) + " tokens");
  }
  return true;
}

void require_gpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) throw MachineError(std::string("no usable GPU: ") + cudaGetErrorString(status));
  if (count == 0) throw MachineError("no usable GPU: the driver lists none");
}

std::string with_commas(double value) {
  std::string digits = std::to_string(std::llround(value));
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

int run(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) return 0;

  // Everything that can be wrong with the input is found before the device is touched.
  Config config;
  const bool from_scratch = config_from_name(o.model, config);
  if (!from_scratch) {
    if (!std::filesystem::exists(o.model)) {
      throw InputError("--model: '" + o.model + "' is neither d12, d24, d36 or d48 nor a file");
    }
    config = read_model_config(o.model);
  }
  if (o.seq_len > config.max_seq_len) {
    throw InputError("--seq-len " + std::to_string(o.seq_len) + " is more than the model's " +
                     std::to_string(config.max_seq_len) + " positions");
  }
  const auto source = open_tokens(o.data, config, o.batch_size, o.seq_len, static_cast<uint64_t>(o.seed));
  // Rows of heads and of logits are read 16 bytes at a time.
  if (config.head_size() % 8 != 0 || config.padded_vocab % 8 != 0) {
    throw InputError("--model: '" + o.model + "' has heads of " + std::to_string(config.head_size()) +
                     " channels and a padded vocabulary of " + std::to_string(config.padded_vocab) +
                     "; baseline-mixed-v1 needs multiples of 8");
  }
  require_gpu();
  const std::vector<float> parameters = from_scratch ? init_parameters(config, static_cast<uint64_t>(o.seed))
                                                     : read_model_parameters(o.model, config);
  if (!o.write_model.empty()) write_model(o.write_model, config, parameters);

  const MemoryPlan plan = plan_memory(config, o.batch_size, o.seq_len);
  Trainer trainer(config, parameters, o.batch_size, o.seq_len, plan);
  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf(
      "baseline-mixed-v1 | %s | %s, %lld layers, %lld channels, %lld parameters | B=%lld T=%lld | "
      "bf16 matmul | %.2f GiB%s\n",
      device.name, o.model.c_str(), static_cast<long long>(config.layers),
      static_cast<long long>(config.channels), static_cast<long long>(TensorTable(config).total),
      static_cast<long long>(o.batch_size), static_cast<long long>(o.seq_len),
      static_cast<double>(plan.bytes) / (1 << 30),
      plan.recompute_attention ? ", attention probabilities recomputed in the backward pass" : "");

  AdamW adam;
  adam.learning_rate = static_cast<float>(o.learning_rate);
  adam.weight_decay = static_cast<float>(o.weight_decay);
  std::vector<double> times_ms;
  Batch batch;
  bool batch_waits = false;  // the dump has already drawn the first step's batch
  if (!o.dump_state.empty()) {
    source->next(batch);
    trainer.dump_state(o.dump_state, batch);
    batch_waits = true;
  }
  for (int64_t step = 1; step <= o.steps; ++step) {
    StepRange range("step");
    const auto begin = std::chrono::steady_clock::now();
    if (!batch_waits) source->next(batch);
    batch_waits = false;
    trainer.load(batch);
    trainer.forward();
    trainer.loss();
    trainer.backward();
    trainer.update(adam, static_cast<float>(o.clip), step);
    const StepScalars result = trainer.finish();
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    times_ms.push_back(ms);
    std::printf("step %4lld | loss %.6f | norm %.4f | %.2f ms | %s tokens/s\n", static_cast<long long>(step),
                result.loss, result.grad_norm, ms,
                with_commas(static_cast<double>(o.batch_size * o.seq_len) / ms * 1e3).c_str());
    std::fflush(stdout);
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
      std::fprintf(stderr,
                   "baseline-mixed-v1: loss or gradient norm is not finite in step %lld; a smaller "
                   "--learning-rate may help\n",
                   static_cast<long long>(step));
      return 1;
    }
  }
  // The first step loads kernels and lets cuBLAS set itself up: its time says nothing about the others.
  if (times_ms.size() > 1) {
    std::sort(times_ms.begin() + 1, times_ms.end());
    const size_t count = times_ms.size() - 1;
    const double median = 0.5 * (times_ms[1 + (count - 1) / 2] + times_ms[1 + count / 2]);
    std::printf("median of steps 2 to %lld: %.3f ms/step, %s tokens/s\n", static_cast<long long>(o.steps),
                median, with_commas(static_cast<double>(o.batch_size * o.seq_len) / median * 1e3).c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const InputError& e) {
    std::fprintf(stderr, "baseline-mixed-v1: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "baseline-mixed-v1: %s\n", e.what());
    return 3;
  }
}
