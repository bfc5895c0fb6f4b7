// A small program that is an arm: it answers the stepping protocol, or misbehaves in the way its first
// argument names.
//   fake_arm MODE [STEP_NS [LOG_FILE]]
// Its step times are made up (STEP_NS with a little deterministic noise), so tests of the runner do not
// depend on how fast this machine is. LOG_FILE gets "start PID" and "step N" lines.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "good";
  const double step_ns = argc > 2 ? std::atof(argv[2]) : 1e6;
  const std::string log = argc > 3 ? argv[3] : "";
  const auto note = [&](const std::string& text) {
    if (!log.empty()) std::ofstream(log, std::ios::app) << text + "\n" << std::flush;
  };
  note("start " + std::to_string(getpid()));
  if (mode == "silent") std::this_thread::sleep_for(std::chrono::hours(1));
  if (mode == "exit_at_start") {
    std::cerr << "no such device\n";
    return 7;
  }
  if (mode == "refuses") {
    std::cerr << "unknown flag --newer\n";
    return 2;
  }
  if (mode == "grandchild" || mode == "daemon") {
    int noted[2];
    if (pipe(noted) != 0) return 1;
    if (const pid_t child = fork(); child == 0) {
      if (mode == "daemon") setsid();
      note("grandchild " + std::to_string(getpid()));
      close(noted[0]);
      close(noted[1]);
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
    close(noted[1]);
    char nothing;
    if (read(noted[0], &nothing, 1) != 0) return 1;  // ends when the child has closed it
    close(noted[0]);
  }
  if (mode == "garbage") std::cout << "hello\n" << std::flush;
  std::cout << R"({"ready": {"trainer": "fake", "mode": ")" << mode << "\"}}\n" << std::flush;
  std::string word;
  int n = 0, blocks = 0, taken = 0;
  while (std::cin >> word) {
    if (word == "again") {
      std::cout << R"({"checks": [{"name": "timed steps", "tensor": "loss", "passed": )" << (mode == "other_steps" ? "false" : "true")
                << R"(, "detail": "4 > 0 steps"}]})"
                << "\n"
                << std::flush;
      break;
    }
    const bool stretch = word == "run";
    if (stretch) {
      double settle_s = 0, measure_s = 0;
      int settle_steps = 0, measure_steps = 0;
      if (!(std::cin >> settle_s >> settle_steps >> measure_s >> measure_steps)) break;
      note("run " + std::to_string(settle_s) + " " + std::to_string(measure_s));
      n = std::max(settle_steps, static_cast<int>(settle_s * 1e9 / step_ns)) +
          std::max(measure_steps, static_cast<int>(measure_s * 1e9 / step_ns)) + 4;
    } else {
      if (word != "step" || !(std::cin >> n)) break;
      note("step " + std::to_string(n));
    }
    blocks = stretch ? 4 : blocks + 1;  // it misbehaves in its fourth block, or in its only stretch
    const auto began = std::chrono::steady_clock::now().time_since_epoch();
    if (blocks == 4) {
      if (mode == "crash") return 9;
      if (mode == "killed") kill(getpid(), SIGKILL);
      if (mode == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
      if (mode == "error") {
        std::cout << "{\"error\": \"out of memory\"}\n" << std::flush;
        return 1;
      }
    }
    if (mode == "no_list" && blocks == 4) {
      std::cout << "{\"times_ns\": 5}\n" << std::flush;
      continue;
    }
    if (mode == "slow_answer") std::this_thread::sleep_for(std::chrono::milliseconds(300));  // none of it in the times
    std::cout << "{";
    if (stretch && mode != "no_begin")
      std::cout << "\"began_ns\": " << (mode == "begun_before" ? 1 : std::chrono::duration_cast<std::chrono::nanoseconds>(began).count())
                << ", ";
    std::cout << "\"times_ns\": [";
    for (int i = 0; i < n; ++i, ++taken) {
      const double noise = 1 + 0.001 * ((taken * 7919) % 13 - 6) / 6.0;
      if (i) std::cout << ",";
      if (i == 0)
        std::cout << 100 * step_ns;  // what a gap before the block does to its first step
      else if (mode == "nan_time" && blocks == 4)
        std::cout << "null";
      else if (mode == "zero_time" && blocks == 4)
        std::cout << "0";
      else
        std::cout << step_ns * noise * (mode == "stalls" && i % 10 == 9 ? 5 : 1);
    }
    std::cout << "], \"losses\": [";
    for (int i = 0; i < (mode == "short_answer" && blocks == 4 ? n - 1 : n); ++i)
      std::cout << (i ? "," : "") << (mode == "nan_loss" && blocks == 4 ? "null" : "4.5");
    std::cout << "]" << (mode == "short_answer" && blocks == 4 ? ", \"times_ns\": [1]" : "");
    if (mode != "no_audit")
      std::cout << ", \"audit\": {\"steps\": " << (mode == "few_steps" ? 1 : n - 1) << ", \"reported_ns\": " << (n - 1) * step_ns
                << ", \"clock_ns\": " << (n - 1) * step_ns * (mode == "two_clocks" ? 2 : 1)
                << ", \"late_ns\": " << (mode == "late_work" || mode == "few_steps" ? 0.9 * step_ns : 1e4) << ", \"launch_error\": \""
                << (mode == "launch_error" ? "invalid argument" : "")
                << "\", \"persisting_l2_bytes\": " << (mode == "persisting_l2" ? 1 << 20 : 0) << "}";
    std::cout << "}\n" << std::flush;
  }
  note("end");
}
