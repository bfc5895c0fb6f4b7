// A GPU's UUID as nvidia-smi prints it: "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx". Documents of one GPU are found to be so by it.
#pragma once
#include <cstdio>
#include <string>

namespace stepscope {

// Of the 16 bytes that CUDA gives.
inline std::string gpu_uuid(const char (&bytes)[16]) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

}  // namespace stepscope
