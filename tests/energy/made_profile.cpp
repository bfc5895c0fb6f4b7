#include "tests/energy/made_profile.h"

#include <nlohmann/json.hpp>

#include "experiments/energy/document.h"
#include "profiler/document/json.h"

std::string made_profile(int64_t batch_size) {
  profiler::ProfileDocument p;
  p.run.trainer = "mixed", p.run.device = "a made GPU", p.run.model = "d12", p.run.matmul = "bf16";
  p.run.batch_size = batch_size, p.run.seq_len = 1024, p.run.accumulation = 1;
  p.ops.emplace_back();
  p.ops[0].pass = "forward", p.ops[0].op = "qkv";
  return profiler::to_json(p);
}

std::string made_energy() {
  energy::Document d;
  d.run.trainer = "mixed", d.run.device = "a made GPU", d.run.model = "d12", d.run.matmul = "bf16";
  d.run.batch_size = 4, d.run.seq_len = 1024, d.run.recompute = "none", d.run.weight_rounding = "nearest";
  d.run.accumulation = 1;
  d.method = {0.6, 2.06, 0.25, 5, 0.002, false, false, true};
  d.step.joules = 6.2, d.step.seconds = 0.009, d.step.power_w = 6.2 / 0.009;
  d.step.graph_joules = 6.1, d.step.graph_seconds = 0.0091;
  energy::OpEnergy op;
  op.pass = "forward", op.op = "qkv", op.instances = 12, op.launches = 12, op.copies = 7;
  op.slope = {0.31, 0.002, 4e-4, 0.31, {}, 1};
  d.ops.push_back(op);
  d.closure = d.closure_at_step_clock = {6.2, 0.31, 0.002};
  return energy::to_json(d).dump(1) + "\n";
}

std::optional<double> joules_of_first_op(const std::string& profile_file) {
  return profiler::load_profile(profile_file).ops.at(0).energy_j;
}
