// What each rank is and was told, field by field, so that ranks which do not fit together are refused before they train.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

enum class Must { match, differ_on_a_host, nothing };

struct IdentityField {
  std::string name;  // as a user knows it: "--lr", "build", "GPU"
  std::string value;
  Must must = Must::match;
};
using Identity = std::vector<IdentityField>;  // each name once

// The first field in which ranks may not differ but do, or may not agree but do ("GPU" twice on one host), with the values and the
// ranks that have each. `host_ids`: [rank]. nullopt: they fit.
std::optional<std::string> disagreement(const std::vector<Identity>& ranks, const std::vector<std::string>& host_ids);

Bytes pack(const Identity& identity);
Identity unpack(const Bytes& bytes);

// Gathers all and throws stepscope::InputError, the same on every rank, where they do not fit.
void compare_identities(ControlChannel& channel, const Identity& mine, const std::string& host_id);

// Of the kernel that runs: the same for all processes of a host, also in containers.
std::string boot_id();

}  // namespace gpt2::distributed
