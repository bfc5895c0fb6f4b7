#include "profiler/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/report/documents.h"

namespace {

using testing::HasSubstr;
using testing::Not;

// What a browser takes for the contents of the element with id="data": up to the next "</script".
std::string data_of(const std::string& page) {
  const size_t begin = page.find('>', page.find("<script type=\"application/json\" id=\"data\"")) + 1;
  return page.substr(begin, page.find("</script", begin) - begin);
}

TEST(Html, HoldsTheWholeDocument) {
  const auto d = nlohmann::json::parse(data_of(profiler::html_text(documents::gpu())));
  EXPECT_EQ(d["schema"], "stepscope.profile/1");
  EXPECT_EQ(d["kernels"].size(), documents::gpu().kernels.size());
}

TEST(Html, NamesCannotLeaveTheirElement) {
  const std::string page = profiler::html_text(documents::hostile());
  const auto d = nlohmann::json::parse(data_of(page));  // throws if a name had ended it
  size_t found = 0;
  for (const auto& k : d["kernels"])
    for (const char* name : documents::kHostileNames) found += k["name"] == name;
  EXPECT_EQ(found, std::size(documents::kHostileNames));
  EXPECT_THAT(page, Not(HasSubstr("<img src=x")));
  EXPECT_THAT(data_of(page), Not(HasSubstr("<")));
  EXPECT_THAT(data_of(page), Not(HasSubstr("\xe2\x80\xa8")));
}

TEST(Html, AsksForNothingFromOutside) {
  std::string page = profiler::html_text(documents::gpu());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* request : {" src=", "<link", "@import", "url(", "fetch(", "XMLHttpRequest", "import("})
    EXPECT_THAT(page, Not(HasSubstr(request))) << request;
}

TEST(Html, StaysBelowTwoMegabytesHoweverManyLaunches) {
  const std::string page = profiler::html_text(documents::with_launches(20000, std::string(300, 'n')));
  EXPECT_LT(page.size(), 2u << 20);
  EXPECT_THAT(page, HasSubstr("data-launches=\"20000\""));
}

TEST(Html, EveryPlaceholderIsFilled) {
  const std::string page = profiler::html_text(documents::gpu());
  for (const char* placeholder : {"@CSS@", "@LAUNCHES@", "@LANES@", "@DATA@", "@VIEW@", "@CHARTS@", "@SCRIPT@"})
    EXPECT_THAT(page, Not(HasSubstr(placeholder)));
  EXPECT_EQ(page.find("Chart.js") != std::string::npos, profiler::has_charts());
}

TEST(Html, AnEmptyDocumentIsAPageToo) { EXPECT_THAT(profiler::html_text({}), HasSubstr("</html>")); }

}  // namespace
