// Text on a stderr that may take nothing any more.
#pragma once
#include <cstdio>
#include <string>

namespace stepscope {

// Its disk may be full, or its terminal closed. That must not end a run before it has saved what it has, nor, from a handler or a destructor,
// the program in an abort: fmt::print throws. The error is forgotten, because main.cpp takes one there for one that fmt threw.
inline void put_on_stderr(const std::string& text) {
  if (std::fputs(text.c_str(), stderr) < 0) std::clearerr(stderr);
}

}  // namespace stepscope
