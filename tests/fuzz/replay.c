/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libFuzzer: gives every file of the folders and files named on the command line
 * to the target once. A bad input ends the process, as under libFuzzer. One thread.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0) {
        perror(path);
        exit(1);
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL || fread(data, 1, size, f) != size) {
        perror(path);
        exit(1);
    }
    (void)fclose(f);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static size_t replay(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return replay_file(path);
    }
    size_t n = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char below[4096];
        (void)snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        n += e->d_name[0] == '.' ? 0 : replay_file(below);
    }
    (void)closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        n += replay(argv[i]);
    }
    printf("%zu inputs\n", n);
    return n > 0 ? 0 : 1;
}
