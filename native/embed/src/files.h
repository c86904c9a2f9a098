// Files: read whole, written so that they are complete before they have their name.
#pragma once

#include <string>

namespace graphopt::embed {

// Content of a file. Throws Error (GRAPHOPT_FILE_ERROR) with the path and the system's reason: a folder is
// none.
std::string read_file(const std::string& path);

// Writes a file whole or not at all, also beside other processes that write the same one; the old file stays
// until then. Throws Error (GRAPHOPT_FILE_ERROR) with the path and the system's reason.
void write_whole_file(const std::string& path, const std::string& content);

}  // namespace graphopt::embed
