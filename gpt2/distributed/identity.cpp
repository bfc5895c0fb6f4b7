#include "gpt2/distributed/identity.h"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "base/text.h"
#include "gpt2/distributed/rendezvous.h"

namespace gpt2::distributed {
namespace {

// "a on ranks 0, 2; b on rank 1"
std::string by_value(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t r = 0; r < values.size(); ++r) {
    auto g = groups.begin();
    while (g != groups.end() && g->first != values[r]) ++g;
    if (g == groups.end()) g = groups.insert(groups.end(), {values[r], {}});
    g->second.push_back(static_cast<int>(r));
  }
  std::string out;
  for (const auto& [value, ranks] : groups)
    out += fmt::format("{}{} on {}", out.empty() ? "" : "; ", value.empty() ? "nothing" : "'" + value + "'", stepscope::named_ranks(ranks));
  return out;
}

const std::string* value_of(const Identity& identity, const std::string& name) {
  for (const IdentityField& f : identity)
    if (f.name == name) return &f.value;
  return nullptr;
}

}  // namespace

std::optional<std::string> disagreement(const std::vector<Identity>& ranks, const std::vector<std::string>& host_ids) {
  Identity fields;  // of all ranks: one may have been given a flag that another was not
  for (const Identity& one : ranks)
    for (const IdentityField& f : one)
      if (value_of(fields, f.name) == nullptr) fields.push_back(f);
  for (const IdentityField& field : fields) {
    std::vector<std::string> values;
    for (const Identity& one : ranks) {
      const std::string* value = value_of(one, field.name);
      values.push_back(value == nullptr ? "" : *value);
    }
    if (field.must == Must::match) {
      for (const std::string& value : values)
        if (value != values[0]) return fmt::format("the ranks differ in {}: {}", field.name, by_value(values));
    }
    if (field.must != Must::differ_on_a_host) continue;
    std::map<std::pair<std::string, std::string>, int> taken;
    for (size_t r = 0; r < values.size(); ++r) {
      if (values[r].empty()) continue;
      const auto [place, fresh] = taken.emplace(std::pair(host_ids[r], values[r]), static_cast<int>(r));
      if (!fresh) return fmt::format("ranks {} and {} have the same {}: {}", place->second, r, field.name, values[r]);
    }
  }
  return std::nullopt;
}

Bytes pack(const Identity& identity) {
  Bytes out;
  const auto put = [&](const std::string& text) {
    out.insert(out.end(), text.begin(), text.end());
    out.push_back(0);
  };
  for (const IdentityField& f : identity) {
    put(f.name);
    put(f.value);
    put(std::string(1, static_cast<char>('0' + static_cast<int>(f.must))));
  }
  return out;
}

Identity unpack(const Bytes& bytes) {
  std::vector<std::string> texts{""};
  for (const unsigned char c : bytes) {
    if (c == 0) {
      texts.emplace_back();
    } else {
      texts.back() += static_cast<char>(c);
    }
  }
  Identity out;
  for (size_t i = 0; i + 2 < texts.size(); i += 3)
    out.push_back({texts[i], texts[i + 1],
                   texts[i + 2] == "0"   ? Must::match
                   : texts[i + 2] == "1" ? Must::differ_on_a_host
                                         : Must::nothing});
  return out;
}

void compare_identities(ControlChannel& channel, const Identity& mine, const std::string& host_id) {
  Identity whole = mine;
  whole.push_back({"host", host_id, Must::nothing});
  std::vector<Identity> ranks;
  std::vector<std::string> hosts;
  for (const Bytes& bytes : channel.all_gather(pack(whole))) {
    ranks.push_back(unpack(bytes));
    hosts.push_back(ranks.back().empty() ? "" : ranks.back().back().value);
  }
  if (const auto why = disagreement(ranks, hosts)) throw stepscope::InputError(*why);
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id.empty() ? host_name() : id;
}

}  // namespace gpt2::distributed
