/* Parts of the compiled program that more than one of its files uses. */

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* launch.c */
void launch(int count, char **arguments);

/* start.c */
int start_command(char **numbers);
extern int report;
long enter(int entrance);
void become(int entrance, int go, char *state, char **paths, char **arguments, char **variables);

/* recipe.c */
extern const char *const UNKNOWN[];
extern char group[PATH_MAX + 128];
extern pid_t witness;
extern int ask, answers;

char *content(const char *path);
long long number_in(const char *directory, const char *name);
int random_bytes(unsigned char *bytes, size_t count);
void put_trace(char *trace, size_t size, const unsigned char random[24]);
double seconds_of(clockid_t clock);
int named(const char *variable, const char *const *names);
int has_project(const char *directory);
void make_group(void);
void close_files_of_shell(void);
void start_witness(pid_t command);
void end_like(int status);
int make_directories(char *path);
