// Loaded before other libraries, fails writes and syncs of files while the file named by FAILING_DISK holds a word:
// "full": write returns ENOSPC; "broken": fdatasync returns EIO.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int said(const char *word) {
  const char *path = getenv("FAILING_DISK");
  char found[16] = "";
  FILE *file = path ? fopen(path, "r") : NULL;
  if (file == NULL) return 0;
  if (fgets(found, sizeof found, file) == NULL) found[0] = 0;
  fclose(file);
  return strcmp(found, word) == 0;
}

static int is_file(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  if (is_file(descriptor) && said("full")) {
    errno = ENOSPC;
    return -1;
  }
  return real(descriptor, bytes, count);
}

int fdatasync(int descriptor) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  if (is_file(descriptor) && said("broken")) {
    errno = EIO;
    return -1;
  }
  return real(descriptor);
}
