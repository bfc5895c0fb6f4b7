// Ways of exchanging gradients and gathering weights between two GPUs: time, what a graph of each holds, whether replays bring the right
// values, and how much slower products become beside each (README.md).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "experiments/prototypes/copy_engine/kernels.h"
#include "experiments/prototypes/copy_engine/products.h"
#include "experiments/prototypes/copy_engine/way.h"
#include "experiments/prototypes/copy_engine/work.h"

namespace copy_engine {
namespace {

enum Table { alone, values, beside, stores, kTables };

// One layer of d12, wte, and as many bytes as all weights in bf16: fp32 elements, multiples of 4096.
constexpr int64_t kLayer = 7'090'176, kTokens = 38'633'472, kAll = kMostElements;

struct Named {
  const char* name;
  std::function<std::unique_ptr<Way>(Pair&)> make;
};

std::vector<Named> ways() {
  // The most important first: time may run out.
  return {{"nccl", [](Pair& p) { return make_nccl_kernels(p, 0); }},
          {"nccl_copies", [](Pair& p) { return make_nccl_copies(p); }},
          {"peer", [](Pair& p) { return make_peer_copies(p, Flags::by_stream, 1); }},
          {"peer_kernel_flags", [](Pair& p) { return make_peer_copies(p, Flags::by_kernel, 1); }},
          {"nccl_8_blocks", [](Pair& p) { return make_nccl_kernels(p, 8); }},
          {"peer_2_copies", [](Pair& p) { return make_peer_copies(p, Flags::by_stream, 2); }},
          {"nccl_windows", [](Pair& p) { return make_nccl_windows(p); }}};
}

class Measurement {
 public:
  Measurement(Pair& pair, std::string name, Way& way) : pair_(pair), name_(std::move(name)), way_(way) {}

  // Twice, because the first collective of a communicator connects. What a failed capture leaves behind comes last.
  void run() {
    for (int i = 0; i < 2; ++i) check(false);
    time_alone(kTokens);
    try {
      check(true);
      capturable_ = true;
    } catch (const std::exception& e) {
      (void)cudaGetLastError();
      pair_.row(values, fmt::format("{:<18} {:<6} no: {:.110}", name_, "graph", e.what()));
    }
    capturable_ = pair_.swap(capturable_) && capturable_;
    for (const int64_t n : {kLayer, kTokens, kAll}) time_alone(n);
    time_beside();
    time_stores();
  }

 private:
  using Call = void (Way::*)(int64_t, cudaStream_t);

  void time_alone(int64_t n) {
    const double exchange = once(n, &Way::exchange, 10), sum = once(n, &Way::sum, 10), gather = once(n, &Way::gather, 10);
    const auto gbs = [&](double ms) { return static_cast<double>(n) * 2 / ms / 1e6; };  // half of the array leaves this rank
    pair_.row(alone, fmt::format("{:<18} {:<6} {:>5.0f} MB {:>9.1f} {:>6.0f} {:>9.1f} {:>9.1f} {:>6.0f}", name_, mode(),
                                 static_cast<double>(n) * 4e-6, exchange * 1e3, gbs(exchange), sum * 1e3, gather * 1e3, gbs(gather)));
  }

  void time_beside() {
    for (const int64_t rows : {int64_t{4096}, int64_t{65536}}) {
      const Product product(rows);
      const int products = rows == 4096 ? 240 : 16;
      const Queue compute = [&](cudaStream_t s) {
        for (int i = 0; i < products; ++i) product.run(s);
      };
      against(product, compute, "exchange", kLayer, &Way::exchange, nullptr);
      against(product, compute, "exchange", kTokens, &Way::exchange, nullptr);
      against(product, compute, "exchange+sum", kTokens, &Way::exchange, &Way::sum);
      against(product, compute, "gather", kTokens, &Way::gather, nullptr);
    }
  }

  // The update's stores to both GPUs instead of a gather: half of the weights in bf16.
  void time_stores() {
    if (way_.their_weights() == nullptr) return;
    const int64_t mine = kAll;  // of d12's weights, which are twice as many elements as kAll
    const auto pass = [&](float* there) {
      return [&, there](cudaStream_t s) {
        for (int i = 0; i < 10; ++i)
          round_to_both(reinterpret_cast<__nv_bfloat16*>(way_.weights()), reinterpret_cast<__nv_bfloat16*>(there), way_.gradients(), mine,
                        s);
      };
    };
    const double here = Work(streams_, pass(nullptr), nullptr, capturable_).time(pair_, 5).main_ms / 10;
    const double both = Work(streams_, pass(way_.their_weights() + kAll / 2), nullptr, capturable_).time(pair_, 5).main_ms / 10;
    pair_.row(stores, fmt::format("{:<18} {:.0f} MB of bf16: stored here {:.1f} us, here and there {:.1f} us", name_,
                                  static_cast<double>(mine) * 2e-6, here * 1e3, both * 1e3));
  }

  const char* mode() const { return capturable_ ? "graph" : "eager"; }

  unsigned wrong_after(Work& exchange, Work& gather, int64_t n, int seed) {
    gpt2::cuda::DeviceBuffer<unsigned> wrong(1);
    const cudaStream_t s = streams_.main.get();
    const int64_t half = n / kRanks, own = pair_.rank() * half;
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(wrong.data(), 0, sizeof(unsigned), s));
    fill(way_.gradients(), 0, n, seed, pair_.rank(), s);
    fill(way_.weights(), 0, n, seed + 7, pair_.rank(), s);
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(s));
    pair_.meet();  // the other one's gather writes into weights()
    exchange.run();
    gather.run();
    count_wrong(wrong.data(), way_.gradients(), own, half, seed, 3, s);
    for (int r = 0; r < kRanks; ++r) count_wrong(wrong.data(), way_.weights(), r * half, half, seed + 7, 1u << r, s);
    unsigned count = 0;
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(&count, wrong.data(), sizeof(count), cudaMemcpyDeviceToHost, s));
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(s));
    pair_.meet();
    return count;
  }

  void check(bool captured) {
    for (const int64_t n : {kLayer, kTokens}) {
      std::optional<Work> exchange, gather;
      std::string why;
      try {
        exchange.emplace(
            streams_, [&](cudaStream_t s) { way_.exchange(n, s), way_.sum(n, s); }, nullptr, captured);
        gather.emplace(
            streams_, [&](cudaStream_t s) { way_.gather(n, s); }, nullptr, captured);
      } catch (const std::exception& e) {
        why = e.what();
      }
      // Both ranks replay or neither.
      if (!pair_.swap(why.empty()) || !why.empty()) throw stepscope::MachineError(why.empty() ? "not captured on the other rank" : why);
      unsigned wrong = 0;
      for (int seed = 1; seed <= 5; ++seed) wrong += wrong_after(*exchange, *gather, n, seed * 31);
      wrong += pair_.swap(wrong);
      pair_.row(values, fmt::format("{:<18} {:<6} {:>4.0f} MB, 5 runs: {} wrong{}", name_, captured ? "graph" : "eager",
                                    static_cast<double>(n) * 4e-6, wrong,
                                    captured ? fmt::format("; {} | {}", exchange->nodes(), gather->nodes()) : ""));
    }
  }

  double once(int64_t n, Call call, int repeats) {
    Work work(
        streams_,
        [&](cudaStream_t s) {
          for (int i = 0; i < repeats; ++i) (way_.*call)(n, s);
        },
        nullptr, capturable_);
    return work.time(pair_, 5).main_ms / repeats;
  }

  // So many calls that they end before the products do.
  void against(const Product& product, const Queue& compute, const char* what, int64_t n, Call first, Call second) {
    const double base = Work(streams_, compute, nullptr, capturable_).time(pair_, 5).main_ms;
    const double each = once(n, first, 4) + (second != nullptr ? once(n, second, 4) : 0);
    int calls = std::max(1, static_cast<int>(base * 0.7 / each));
    calls = std::min(calls, pair_.swap(calls));
    const Queue communicate = [&](cudaStream_t s) {
      for (int i = 0; i < calls; ++i) {
        (way_.*first)(n, s);
        if (second != nullptr) (way_.*second)(n, s);
      }
    };
    const Work::Times both = Work(streams_, compute, communicate, capturable_).time(pair_, 5);
    pair_.row(beside, fmt::format("{:<18} {:>6} {:<13} {:>4.0f} MB {:>3} x {:>7.1f} {:>9.1f} {:>8.3f} {:>8.3f} {:>8.1f} {:>6.1f}%", name_,
                                  product.rows(), what, static_cast<double>(n) * 4e-6, calls, each * 1e3, both.beside_ms / calls * 1e3,
                                  base, both.main_ms, (both.main_ms - base) / calls * 1e3, (both.main_ms - base) / both.beside_ms * 100));
  }

  Pair& pair_;
  std::string name_;
  Way& way_;
  Streams streams_;
  bool capturable_ = false;
};

void measure(Pair& pair, const Named& named) {
  STEPSCOPE_CUDA_CHECK(cudaSetDevice(pair.rank()));
  const std::unique_ptr<Way> way = named.make(pair);
  Measurement m(pair, named.name, *way);
  m.run();
}

void print(const Rows& rows) {
  const char* heads[kTables] = {
      "Alone, us per call and GB/s that leave a GPU (half of the array): exchange, sum after it, gather\n"
      "way                mode      array  exchange   GB/s       sum    gather   GB/s",
      "Values, and what a graph of exchange and sum | of gather holds",
      "Products beside communication on both ranks: us per call alone and beside products; ms of the products alone and beside calls;\n"
      "delay in us per call, and as a share of the time that the calls take\n"
      "way                  rows call          array              us    beside    alone   beside    delay   share",
      "Stores of an update that rounds this rank's half of d12's weights"};
  for (size_t t = 0; t < rows.size(); ++t) {
    fmt::print("\n{}\n", heads[t]);
    for (const std::string& row : rows[t]) fmt::print("{}\n", row);
  }
}

int run(const std::vector<std::string>& wanted) {
  Rows rows(kTables);
  std::vector<std::string> failures;
  for (const Named& way : ways()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), way.name) == wanted.end()) continue;
    const std::string why = run_pair(25, kTables, rows, [&](Pair& pair) { measure(pair, way); });
    if (!why.empty()) failures.push_back(fmt::format("{}: {}", way.name, why));
  }
  print(rows);
  for (const std::string& f : failures) fmt::print("\nnot finished: {}\n", f);
  return failures.empty() ? 0 : 3;
}

}  // namespace
}  // namespace copy_engine

// Arguments: names of ways; all without.
int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);  // in every process from the start
  try {
    return copy_engine::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 3;
  }
}
