// What the CUPTI files of this folder share. Only cupti_*.cpp include this header: everything else speaks
// backend.h and events.h.
#pragma once
// cupti_profiler_host.h uses std::string in C clothes and wants <string> first.
#include <cuda.h>
#include <cupti.h>

#include <stdexcept>
#include <string>

#include "profiler/collect/backend.h"

// Every params struct of the profiler APIs: zeroed, then its size, which tells CUPTI which fields the caller
// knows.
#define STEPSCOPE_CUPTI_PARAMS(Type, variable) \
  Type variable{};                             \
  variable.structSize = Type##_STRUCT_SIZE

namespace profiler::collect {

class CuptiError : public std::runtime_error {
 public:
  CuptiError(const char* call, CUptiResult result);
  CUptiResult result;
};

// Throws CuptiError. Used inside the backend only, whose public functions turn it into a Failure.
void check(CUptiResult result, const char* call);

// The row of the catalogue of missing data that an error of the counter API belongs to, with the cure where
// there is one.
Failure counter_failure(const CuptiError& error);

}  // namespace profiler::collect
