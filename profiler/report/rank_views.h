// What the document of several ranks shows besides: each rank, each collective, and what both say in words.
#pragma once
#include <string>
#include <vector>

#include "profiler/document/profile.h"
#include "profiler/report/view.h"
#include "profiler/report/views.h"

namespace profiler {

View rank_view(const ProfileDocument& document);
// "waiting 0.010 ms, transfer …": what exposed communication consists of, and what of it belongs to no collective, like the sums of `peer`.
// Empty where the parts are not known.
std::string exposed_parts(const Number& exposed_ns, const Number& wait_ns, const Number& transfer_ns, const Number& drain_ns);
// Most exposed first, the rest in a note. The page gets all, in their order.
View collective_view(const ProfileDocument& document, Output output, size_t top);
std::vector<std::string> rank_sentences(const ProfileDocument& document);

// Columns of the passes' table: the longest time of any rank, and communication beside other work. None for one rank.
std::vector<ViewColumn> rank_pass_columns(const ProfileDocument& document);
std::vector<ViewCell> rank_pass_cells(const ProfileDocument& document, const std::string& pass);

}  // namespace profiler
