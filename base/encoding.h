// What a file has where the UTF-8 that this program reads should be: another encoding, or text that is packed.
#pragma once
#include <string>
#include <string_view>

namespace stepscope {

// "UTF-16" or "UTF-32"; "" where the text may be UTF-8. Told by the byte order mark, or without one by letters, digits and signs of ASCII
// that each stand beside a zero byte, anywhere in the first 64 KiB: Windows PowerShell's > and >> write UTF-16, the latter without a mark
// behind what is there already. Bytes that are no text of either kind are "".
std::string_view other_encoding(std::string_view text);

// The same for a message about `file`: "the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8 x.csv > NEW`", or
// "the file is compressed by gzip, expected text; `gzip -dk x.csv.gz` unpacks it", and so for the other containers in which data sets
// come. "" where the text may be UTF-8.
std::string not_utf8(std::string_view text, std::string_view file);

}  // namespace stepscope
