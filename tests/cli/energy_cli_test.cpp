// `energy` on a machine that cannot count joules, and the document shown again on any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "run_stepscope.h"
#include "tests/temporary_folder.h"

namespace {
