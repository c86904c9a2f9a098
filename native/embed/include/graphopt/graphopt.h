/* graphopt as a C library: graphs of g2o's types and of your own, optimized.
 *
 *   graphopt_graph* graph;
 *   graphopt_graph_new(NULL, &graph);                       // built-in types; or a file of `graphopt export`
 *   graphopt_graph_read(graph, "sphere.g2o");
 *   graphopt_summary summary;
 *   graphopt_optimize(graph, NULL, &summary);
 *   graphopt_get_estimates(graph, "VERTEX_SE3:QUAT", ids, estimates, count);
 *
 * Every function returns a status; graphopt_last_error() is a sentence about the last failure of this thread.
 * A failed call changes nothing. Threads may work on different graphs at the same time; a graph may be used
 * by one at a time. Arrays are row-major. Storage of types, order of tangent vectors, chi2 without 1/2:
 * docs/conventions.md. What is not here needs the Python package: native/embed/README.md.
 */
#ifndef GRAPHOPT_GRAPHOPT_H
#define GRAPHOPT_GRAPHOPT_H

#include <stdint.h>

#if defined(__GNUC__)
#define GRAPHOPT_API __attribute__((visibility("default")))
#else
#define GRAPHOPT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct graphopt_graph graphopt_graph;

typedef enum graphopt_status {
  GRAPHOPT_OK = 0,
  GRAPHOPT_INVALID_ARGUMENT = 1, /* a null pointer, a wrong length, an option that cannot work */
  GRAPHOPT_UNKNOWN_TYPE = 2,     /* no vertex, edge, parameter or robust kernel of this name */
  GRAPHOPT_UNKNOWN_ID = 3,       /* no vertex or parameter has this id, or two have it */
  GRAPHOPT_FORMAT_ERROR = 4,     /* a file does not follow its format: path:line */
  GRAPHOPT_FILE_ERROR = 5,       /* a file cannot be opened, read or written */
  GRAPHOPT_OUT_OF_MEMORY = 6,
  GRAPHOPT_INTERNAL_ERROR = 7,
  GRAPHOPT_SINGULAR = 8,    /* H has no inverse */
  GRAPHOPT_DEVICE_ERROR = 9 /* there is no such Vulkan device, it failed, or the types have no SPIR-V */
} graphopt_status;

typedef enum graphopt_method {
  GRAPHOPT_LEVENBERG_MARQUARDT = 0,
  GRAPHOPT_GAUSS_NEWTON = 1,
  GRAPHOPT_DOGLEG = 2
} graphopt_method;

/* Vertices to hold for the call. AUTO: one pose of each part of the graph that nothing else holds. */
typedef enum graphopt_fix { GRAPHOPT_FIX_AUTO = 0, GRAPHOPT_FIX_NONE = 1 } graphopt_fix;

typedef enum graphopt_linear_solver {
  GRAPHOPT_LINEAR_AUTO = 0,
  GRAPHOPT_CHOLESKY = 1, /* sparse */
  GRAPHOPT_DENSE = 2,
  GRAPHOPT_PCG = 3
} graphopt_linear_solver;

/* Elimination of marginalized vertices, such as the points of a bundle adjustment. */
typedef enum graphopt_schur {
  GRAPHOPT_SCHUR_AUTO = 0, /* where there are some and it pays */
  GRAPHOPT_SCHUR_OFF = 1,
  GRAPHOPT_SCHUR_EXPLICIT = 2,
  GRAPHOPT_SCHUR_IMPLICIT = 3 /* never formed: conjugate gradients */
} graphopt_schur;

typedef enum graphopt_termination {
  GRAPHOPT_CONVERGENCE = 0,
  GRAPHOPT_NO_CONVERGENCE = 1, /* max_num_iterations were made */
  GRAPHOPT_NO_IMPROVEMENT = 2, /* no damping led to a smaller chi2; the estimates are the best known */
  GRAPHOPT_LINEAR_SOLVER_FAILURE = 3,
  GRAPHOPT_NON_FINITE = 4,
  GRAPHOPT_TIME_LIMIT = 5,
  GRAPHOPT_USER_STOP = 6 /* the callback said so */
} graphopt_termination;

typedef struct graphopt_iteration {
  int number; /* from 0 */
  int num_trials;
  double chi2;   /* after it, robustified */
  double lambda; /* after it; 0: none */
  double seconds;
} graphopt_iteration;

/* Called after each iteration, by the thread that optimizes; the graph has its old estimates. Not 0: stop. */
typedef int (*graphopt_callback)(const graphopt_iteration* iteration, void* data);

typedef struct graphopt_options {
  int method; /* graphopt_method */
  int max_num_iterations;
  double function_tolerance; /* relative change of chi2; 0: not looked at */
  double gradient_tolerance; /* largest |b_i|; 0: not looked at */
  double step_tolerance;     /* largest |dx_i|; 0: not looked at */
  double initial_lambda;     /* of Levenberg-Marquardt; 0: 1e-5 times the largest diagonal entry of H */
  double time_limit;         /* [s], looked at before each trial; 0: none */
  int linear_solver;         /* graphopt_linear_solver */
  int schur;                 /* graphopt_schur */
  int fix;                   /* graphopt_fix */
  int level;                 /* of the edges that take part */
  /* Who evaluates the edges: NULL or "cpu", "vulkan" (the best device), "vulkan:INDEX", "vulkan:PART OF
   * NAME". The types need SPIR-V (`graphopt export --device vulkan`). Steps are solved on the CPU. */
  const char* device;
  int validation;             /* 1: under Vulkan's validation layer, whose first message is an error */
  graphopt_callback callback; /* may be NULL */
  void* callback_data;
} graphopt_options;

typedef struct graphopt_summary {
  int termination; /* graphopt_termination */
  int num_iterations;
  double initial_chi2, final_chi2; /* robustified */
  double seconds;
  double seconds_evaluating, seconds_solving; /* parts of it: chi2, H and b; linear systems */
  int linear_solver, schur;                   /* what was taken */
  int num_held_vertices; /* held for this call because nothing else fixes their part of the graph */
  char device[256];      /* who evaluated the edges: "cpu" or the device's name */
  int64_t held_vertex;   /* id of the first one, or -1 */
} graphopt_summary;

GRAPHOPT_API const char* graphopt_version(void);
GRAPHOPT_API const char* graphopt_last_error(void);
GRAPHOPT_API int graphopt_num_threads(void);
GRAPHOPT_API graphopt_status graphopt_set_num_threads(int count);

/* types: path of a types.txt that `graphopt export` wrote; NULL: the built-in types, which .g2o files hold.
 */
GRAPHOPT_API graphopt_status graphopt_graph_new(const char* types, graphopt_graph** graph);
GRAPHOPT_API void graphopt_graph_free(graphopt_graph* graph);

/* Add what a file has, ids as there: .g2o, BAL (points are marginalized), a graph.txt of `graphopt export`.
 */
GRAPHOPT_API graphopt_status graphopt_graph_read(graphopt_graph* graph, const char* path);
/* The same of a .g2o file of a known dialect, "g2o" (C++) or "g2opy"; NULL: the one that its comment
 * `# dialect:` names, else the one that its edges fit. num_unknown NULL: a line of an unknown tag is an
 * error; else such lines are left out and counted there. */
GRAPHOPT_API graphopt_status graphopt_graph_read_as(graphopt_graph* graph, const char* path,
                                                    const char* dialect, int64_t* num_unknown);
/* Write a .g2o file (C++ g2o's dialect) if the path ends so, else a graph.txt. A .g2o file has no place for
 * levels and marginalized flags. */
GRAPHOPT_API graphopt_status graphopt_graph_write(const graphopt_graph* graph, const char* path);

/* ids (count,), estimates (count, storage_dim); NULL: the type's identity. */
GRAPHOPT_API graphopt_status graphopt_add_vertices(graphopt_graph* graph, const char* type,
                                                   const int64_t* ids, const double* estimates,
                                                   int64_t count);
/* Constants that edges share; values (count, storage_dim). */
GRAPHOPT_API graphopt_status graphopt_add_parameters(graphopt_graph* graph, const char* type,
                                                     const int64_t* ids, const double* values, int64_t count);
/* type: tag, of edges of any arity TAG/arity. vertices (count, arity) ids; parameters (count, num_parameters)
 * ids or NULL where the type has none; measurements (count, measurement_dim); information (count,
 * residual_dim, residual_dim) or NULL: identity; kernel: name of a robust kernel ("Huber", ...) or NULL;
 * kernel_width is read where there is one; level: 0 unless some edges are left out of an optimization. */
GRAPHOPT_API graphopt_status graphopt_add_edges(graphopt_graph* graph, const char* type,
                                                const int64_t* vertices, const int64_t* parameters,
                                                const double* measurements, const double* information,
                                                const char* kernel, double kernel_width, int level,
                                                int64_t count);
/* fixed: 1 hold at their estimates, 0 let go. */
GRAPHOPT_API graphopt_status graphopt_set_fixed(graphopt_graph* graph, const int64_t* ids, int64_t count,
                                                int fixed);
/* marginalized: 1 eliminated by the Schur complement; of those that share an edge only some are. */
GRAPHOPT_API graphopt_status graphopt_set_marginalized(graphopt_graph* graph, const int64_t* ids,
                                                       int64_t count, int marginalized);

GRAPHOPT_API graphopt_status graphopt_count_vertices(const graphopt_graph* graph, const char* type,
                                                     int64_t* count);
GRAPHOPT_API graphopt_status graphopt_count_edges(const graphopt_graph* graph, const char* type,
                                                  int64_t* count);
GRAPHOPT_API graphopt_status graphopt_storage_dim(const graphopt_graph* graph, const char* type, int* dim);
GRAPHOPT_API graphopt_status graphopt_tangent_dim(const graphopt_graph* graph, const char* type, int* dim);
/* ids (count,) or NULL, estimates (count, storage_dim) of all vertices of a type, in the order they were
 * added. */
GRAPHOPT_API graphopt_status graphopt_get_estimates(const graphopt_graph* graph, const char* type,
                                                    int64_t* ids, double* estimates, int64_t count);
/* Set the estimates of all vertices of a type, in that order. */
GRAPHOPT_API graphopt_status graphopt_set_estimates(graphopt_graph* graph, const char* type,
                                                    const double* estimates, int64_t count);
GRAPHOPT_API graphopt_status graphopt_set_estimate(graphopt_graph* graph, int64_t id, const double* estimate,
                                                   int dim);

/* Sum of rho(e' Omega e) over the edges of a level that have a vertex which is not fixed. */
GRAPHOPT_API graphopt_status graphopt_chi2(const graphopt_graph* graph, int level, double* chi2);
GRAPHOPT_API void graphopt_default_options(graphopt_options* options);
/* options NULL: defaults. summary may be NULL. A run that does not converge is no error: see termination. */
GRAPHOPT_API graphopt_status graphopt_optimize(graphopt_graph* graph, const graphopt_options* options,
                                               graphopt_summary* summary);
/* Marginal covariances of vertices, at the present estimates: blocks of inv(H), (tangent_dim, tangent_dim)
 * each, one after the other. size: numbers that `covariances` has room for. */
GRAPHOPT_API graphopt_status graphopt_covariances(const graphopt_graph* graph, int level, const int64_t* ids,
                                                  int64_t count, double* covariances, int64_t size);

#ifdef __cplusplus
}
#endif

#endif
