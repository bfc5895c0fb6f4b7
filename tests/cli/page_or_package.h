// Whether the programs of this build draw HTML reports, and what they say where they do not.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

// Not report/html.h: it knows a namespace stepscope, and run_stepscope.h has a function of that name.
#include "profiler/report/page_files.h"
#include "tests/cli/run_stepscope.h"

inline bool draws_pages() { return !profiler::page::charts().empty(); }

// Built without Chart.js: exit 3 with a sentence that names the page and the package.
inline void expect_the_package_named(const Outcome& o, const std::string& page) {
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.err, testing::HasSubstr("'" + page + "': this program was built without Chart.js (package libjs-chart.js)"));
}
