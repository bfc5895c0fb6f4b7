// What is said of a document beside its tables: the headline, and how and where it was measured. Terminal, Markdown and the page print the
// same words.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "profiler/document/profile.h"

namespace profiler {

struct Fact {
  std::string before, value, after;  // "step", "8.862 ms", "[8.851, 8.870] cool"
};
std::vector<Fact> headline(const ProfileDocument& document);
// What the tables of the terminal say below it: idle time and headroom.
std::vector<Fact> device_facts(const ProfileDocument& document);
// Device, trainer, shape, clocks.
std::vector<std::string> what_ran(const ProfileDocument& document);
std::vector<std::pair<std::string, std::string>> environment_facts(const ProfileDocument& document);

// Sentences under a chart of the page; "" where there is nothing to say.
std::string steps_sentence(const ProfileDocument& document);
std::string timeline_sentence(const ProfileDocument& document);
std::string ceilings_sentence(const ProfileDocument& document);
// What the columns of the tables mean, of those that the document can fill.
std::string legend(const ProfileDocument& document);

}  // namespace profiler
