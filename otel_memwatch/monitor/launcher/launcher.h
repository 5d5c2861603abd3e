/* Parts of the compiled program that more than one of its files uses. */

#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* launch.c */
void launch(int count, char **arguments);

/* start.c */
#define START "command-start"
int start_command(char **numbers);
extern int report;
long enter(int entrance);
void become(int entrance, int go, char *state, char **paths, char **arguments, char **variables);

/* witness.c */
#define WITNESS "signal-witness"
extern pid_t witness;       /* -1: none */
extern int ask, answers;    /* descriptors of its questions and replies */
extern char **words;        /* the arguments of this program, whose memory gets the name of the witness */
_Noreturn void stand_witness(int questions, int replies, int command, int watched);
void start_witness(pid_t command);
void close_files_of_shell(void);

/* surroundings.c */
extern const char *const UNKNOWN[];
extern char group[PATH_MAX + 128]; /* path of the run's cgroup; empty: none */

typedef struct {
    sigset_t mask;
    struct sigaction children; /* of SIGCHLD */
} Inherited;

char *content(const char *path);
long long number_in(const char *directory, const char *name);
int make_directories(char *path);
int make_trace(char *trace, size_t size);
double seconds_of(clockid_t clock);
int named(const char *variable, const char *const *names);
int has_project(const char *directory);
int has_timer(void);
void make_group(void);
int open_entrance(void);
void take_signals(Inherited *inherited);
void give_signals(const Inherited *inherited);
_Noreturn void end_like(int status);
