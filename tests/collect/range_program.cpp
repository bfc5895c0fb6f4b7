// A program with NVTX ranges in all spellings and no CUDA. Arguments: steps, then optionally "fork" (a child
// that also steps), "wide", "threads". Prints nothing of its own.
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t d = nvtxDomainCreateA("program");
  return d;
}

void in_domain(const char* name, bool registered) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  if (registered) {
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(domain(), name);
  } else {
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = name;
  }
  nvtxDomainRangePushEx(domain(), &a);
  nvtxDomainRangePop(domain());
}

bool step(int i, bool wide) {
  bool good = true;
  if (wide)
    good = nvtxRangePushW(L"step") == 0;
  else
    good = nvtxRangePushA("step") == 0;
  in_domain("forward/0/qkv", i % 2 == 0);
  good = good && nvtxRangePushA("inner") == 1;
  good = good && nvtxRangePop() == 1;
  good = good && nvtxRangePop() == 0;
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 0;
  const char* how = argc > 2 ? argv[2] : "";
  bool good = true;
  for (int i = 0; i < steps; ++i) good = step(i, std::strcmp(how, "wide") == 0) && good;
  if (std::strcmp(how, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0; i < 50; ++i) step(i, false);
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    good = good && status == 0;
    for (int i = 0; i < steps; ++i) step(i, false);
  }
  if (std::strcmp(how, "threads") == 0) {
    std::thread other([&] {
      for (int i = 0; i < 1000; ++i) in_domain("elsewhere", i % 3 == 0);
    });
    for (int i = 0; i < 1000; ++i) step(i, false);
    other.join();
  }
  return good ? 0 : 7;
}
