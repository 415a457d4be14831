// Writes the first inputs of the fuzzers: small valid segments. `make_seeds FOLDER`
#include <filesystem>
#include <fstream>

#include "memory_file.h"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::filesystem::path folder = arguments[1];
  std::filesystem::create_directories(folder);
  const std::vector<std::vector<std::uint32_t>> one = {{1}}, few = {{1, 2, 3, 1, 2, 4}, {}, {1, 2, 3}};
  const auto write = [&](const char* name, const suffolk::fuzz::Bytes& bytes) {
    std::ofstream(folder / name, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  write("one", suffolk::fuzz::write_sample(one, 2, 1));
  write("few", suffolk::fuzz::write_sample(few, 5, 8));
  return 0;
}
