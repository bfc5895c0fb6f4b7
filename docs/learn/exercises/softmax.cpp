// Chapter 5 on a CPU: four ways from logits to loss and gradient, and yours, on rows that hurt. Counts how often each touches a logit.
//   c++ -O2 -std=c++20 docs/learn/exercises/softmax.cpp -o build/softmax && build/softmax       exit 0: `merged` is right, 1: it is not
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int V = 50257, Vp = 50304;  // the columns from V on are padding

// A row of logits in memory. `get` and `put` count.
struct Row {
  std::vector<float> x;
  int target = 0;
  long reads = 0, writes = 0;

  float get(int v) { return ++reads, x[static_cast<size_t>(v)]; }
  void put(int v, float value) { ++writes, x[static_cast<size_t>(v)] = value; }
};

// Largest logit so far, and the sum of exp(x - largest).
struct Part {
  float largest = -INFINITY, sum = 0;
};

Part with(Part p, float x) {
  const float larger = std::max(p.largest, x);
  return {larger, p.sum * std::exp(p.largest - larger) + std::exp(x - larger)};
}

// Yours. Eight lanes have each seen every eighth logit: what has their sum to be multiplied by before it may be added? (An empty lane has
// -INFINITY and 0, and -INFINITY - -INFINITY is NaN.)
Part merged(Part a, Part b) { return {std::max(a.largest, b.largest), a.sum + b.sum}; }

// Each leaves the gradient in the row, without the factor 1 / tokens, and returns the loss.

float as_written(Row& row) {
  float sum = 0;
  for (int v = 0; v < V; ++v) sum += std::exp(row.get(v));
  for (int v = 0; v < V; ++v) row.put(v, std::exp(row.get(v)) / sum);
  const float loss = -std::log(row.get(row.target));
  for (int v = 0; v < Vp; ++v) row.put(v, v < V ? row.get(v) - (v == row.target ? 1.0f : 0.0f) : 0.0f);
  return loss;
}

float largest_first(Row& row) {
  float largest = -INFINITY, sum = 0;
  for (int v = 0; v < V; ++v) largest = std::max(largest, row.get(v));
  for (int v = 0; v < V; ++v) sum += std::exp(row.get(v) - largest);
  for (int v = 0; v < V; ++v) row.put(v, std::exp(row.get(v) - largest) / sum);
  const float loss = -std::log(row.get(row.target));
  for (int v = 0; v < Vp; ++v) row.put(v, v < V ? row.get(v) - (v == row.target ? 1.0f : 0.0f) : 0.0f);
  return loss;
}

float finish(Row& row, Part all) {
  const float loss = std::log(all.sum) - (row.get(row.target) - all.largest);
  for (int v = 0; v < Vp; ++v) row.put(v, v < V ? std::exp(row.get(v) - all.largest) / all.sum - (v == row.target ? 1.0f : 0.0f) : 0.0f);
  return loss;
}

float online(Row& row) {
  Part all;
  for (int v = 0; v < V; ++v) all = with(all, row.get(v));
  return finish(row, all);
}

float one_read(Row& row) {
  std::vector<float> kept(V);  // the shared memory of a block
  Part all;
  for (int v = 0; v < V; ++v) all = with(all, kept[static_cast<size_t>(v)] = row.get(v));
  const float loss = std::log(all.sum) - (kept[static_cast<size_t>(row.target)] - all.largest);
  for (int v = 0; v < Vp; ++v)
    row.put(v, v < V ? std::exp(kept[static_cast<size_t>(v)] - all.largest) / all.sum - (v == row.target ? 1.0f : 0.0f) : 0.0f);
  return loss;
}

float yours(Row& row) {
  Part lanes[8], all;
  for (int v = 0; v < V; ++v) lanes[v % 8] = with(lanes[v % 8], row.get(v));
  for (const Part& lane : lanes) all = merged(all, lane);
  return finish(row, all);
}

// The rows that the gate draws for the classifier (experiments/gate/op_inputs.cu), and the padding that it puts behind them.
struct Trap {
  const char* name;
  float (*at)(int v, float normal);
};
constexpr Trap kTraps[] = {
    {"ordinary", [](int, float x) { return 2 * x; }},
    {"all near -120", [](int, float x) { return x - 120; }},
    {"one of 80", [](int v, float x) { return v == 7919 ? 80 : x; }},
    {"all equal", [](int, float) { return 1.5f; }},
    {"-80 to 80", [](int, float x) { return std::clamp(40 * x, -80.0f, 80.0f); }},
};

Row row_of(const Trap& trap) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Row row;
  for (int v = 0; v < Vp; ++v) row.x.push_back(v < V ? trap.at(v, normal(random)) : 1e4f);
  // The least likely token: its probability is what fp32 may not hold.
  row.target = static_cast<int>(std::min_element(row.x.begin(), row.x.begin() + V) - row.x.begin());
  return row;
}

// The larger of the loss's relative error and the gradient's, by norm; fp64 is the truth.
double error_of(const Row& before, const Row& after, float loss) {
  double largest = -INFINITY, sum = 0, off = 0, norm = 0;
  for (int v = 0; v < V; ++v) largest = std::max<double>(largest, before.x[static_cast<size_t>(v)]);
  for (int v = 0; v < V; ++v) sum += std::exp(before.x[static_cast<size_t>(v)] - largest);
  for (int v = 0; v < Vp; ++v) {
    const auto i = static_cast<size_t>(v);
    const double want = v < V ? std::exp(before.x[i] - largest) / sum - (v == before.target) : 0;
    off += (after.x[i] - want) * (after.x[i] - want);
    norm += want * want;
  }
  const double want = std::log(sum) - (before.x[static_cast<size_t>(before.target)] - largest);
  const double of_loss = std::abs(loss - want) / std::max(1.0, want), of_gradient = std::sqrt(off / norm);
  return of_loss >= of_gradient || std::isnan(of_loss) ? of_loss : of_gradient;
}

}  // namespace

int main() {
  constexpr double kBudget = 1e-4;  // of sums of 50,257 numbers one after the other in fp32
  const struct {
    const char* name;
    float (*run)(Row&);
  } rungs[] = {{"as_written", as_written}, {"largest_first", largest_first}, {"online", online}, {"one_read", one_read}, {"yours", yours}};
  std::printf("%-14s %5s %6s", "rung", "reads", "writes");
  for (const Trap& trap : kTraps) std::printf(" %15s", trap.name);
  bool yours_is_right = true;
  for (const auto& rung : rungs) {
    std::printf("\n%-14s", rung.name);
    for (const Trap& trap : kTraps) {
      const Row before = row_of(trap);
      Row row = before;
      const float loss = rung.run(row);
      if (&trap == kTraps) std::printf(" %5.1f %6.1f", static_cast<double>(row.reads) / V, static_cast<double>(row.writes) / V);
      const double error = error_of(before, row, loss);
      const bool right = error <= kBudget;  // NaN is not
      std::printf(right ? "         %.1e" : "   WRONG %.1e", error);
      if (rung.run == yours) yours_is_right = yours_is_right && right;
    }
  }
  std::printf("\nerrors against fp64, budget %.0e; yours is %s\n", kBudget, yours_is_right ? "right" : "wrong");
  return yours_is_right ? 0 : 1;
}
