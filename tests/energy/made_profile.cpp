#include "tests/energy/made_profile.h"

#include "profiler/document/json.h"

std::string made_profile(int64_t batch_size) {
  profiler::ProfileDocument p;
  p.run.trainer = "mixed", p.run.device = "a made GPU", p.run.model = "d12", p.run.matmul = "bf16";
  p.run.batch_size = batch_size, p.run.seq_len = 1024, p.run.accumulation = 1;
  p.ops.emplace_back();
  p.ops[0].pass = "forward", p.ops[0].op = "qkv";
  return profiler::to_json(p);
}

std::optional<double> joules_of_first_op(const std::string& profile_file) {
  return profiler::load_profile(profile_file).ops.at(0).energy_j;
}
