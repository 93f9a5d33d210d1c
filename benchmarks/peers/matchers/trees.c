/* Counting over segment trees. The leaves of an attribute's tree are the end points of its ranges and
   the gaps between them; a node lists the subscriptions that cover all of it and not all of its
   parent. A publication walks from leaf to root in each tree and counts. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matchers.h"

struct tree {
    double *points;
    long count, size; /* leaves in use are 2 * count, leaves in the tree a power of two */
    long *start;      /* subscriptions of node n: ids[start[n]] to ids[start[n + 1]] */
    int *ids;
};

struct trees {
    long subscriptions;
    struct tree tree[ATTRIBUTES];
    int *wanted, *seen;
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many points are below a value. */
static long below(const struct tree *tree, double value) {
    long low = 0, high = tree->count;
    while (low < high) {
        long middle = (low + high) / 2;
        if (tree->points[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void collect_points(struct tree *tree, long n, const double *low, const double *high) {
    tree->points = malloc((2 * n + 1) * sizeof(double));
    long count = 0;
    for (long i = 0; i < n; i++)
        if (isfinite(low[i * ATTRIBUTES])) {
            tree->points[count++] = low[i * ATTRIBUTES];
            tree->points[count++] = high[i * ATTRIBUTES];
        }
    qsort(tree->points, count, sizeof(double), by_value);
    for (long i = 0; i < count; i++)
        if (tree->count == 0 || tree->points[tree->count - 1] != tree->points[i])
            tree->points[tree->count++] = tree->points[i];
    for (tree->size = 2; tree->size < 2 * tree->count;) tree->size *= 2;
}

/* Visit the nodes that make up a range: count them, or write the subscription into them. */
static void cover(struct tree *tree, double low, double high, long *start, int id, int writing) {
    long a = 2 * below(tree, low) + tree->size, b = 2 * below(tree, high) + 1 + tree->size;
    for (; a < b; a /= 2, b /= 2) {
        long nodes[2], n = 0;
        if (a & 1) nodes[n++] = a++;
        if (b & 1) nodes[n++] = --b;
        while (n--) {
            if (writing) tree->ids[start[nodes[n]]++] = id;
            else start[nodes[n] + 1]++;
        }
    }
}

static void build_tree(struct tree *tree, long n, const double *low, const double *high) {
    collect_points(tree, n, low, high);
    long nodes = 2 * tree->size;
    tree->start = calloc(nodes + 1, sizeof(long));
    long *next = malloc((nodes + 1) * sizeof(long));
    for (int writing = 0; writing < 2; writing++) {
        for (long i = 0; i < n; i++)
            if (isfinite(low[i * ATTRIBUTES]))
                cover(tree, low[i * ATTRIBUTES], high[i * ATTRIBUTES], writing ? next : tree->start,
                      (int)i, writing);
        if (writing) break;
        for (long node = 0; node < nodes; node++) tree->start[node + 1] += tree->start[node];
        tree->ids = malloc((tree->start[nodes] + 1) * sizeof(int));
        memcpy(next, tree->start, (nodes + 1) * sizeof(long));
    }
    free(next);
}

void *trees_build(long n, const double *low, const double *high) {
    struct trees *trees = calloc(1, sizeof *trees);
    trees->subscriptions = n;
    trees->wanted = calloc(n, sizeof(int));
    trees->seen = calloc(n, sizeof(int));
    for (int a = 0; a < ATTRIBUTES; a++) build_tree(&trees->tree[a], n, low + a, high + a);
    for (long i = 0; i < n; i++)
        for (int a = 0; a < ATTRIBUTES; a++) trees->wanted[i] += isfinite(low[i * ATTRIBUTES + a]);
    return trees;
}

static long count_path(const struct trees *trees, const struct tree *tree, double value, int *found,
                       long matches) {
    long point = below(tree, value);
    int exact = point < tree->count && tree->points[point] == value;
    if (!exact && point == 0) return matches;
    for (long node = 2 * point - !exact + tree->size; node; node /= 2)
        for (long i = tree->start[node]; i < tree->start[node + 1]; i++) {
            int id = tree->ids[i];
            if (++trees->seen[id] == trees->wanted[id]) found[matches++] = id;
        }
    return matches;
}

long trees_match(void *handle, long publications, const double *values, int *found) {
    struct trees *trees = handle;
    long total = 0;
    for (long p = 0; p < publications; p++) {
        long matches = 0;
        memset(trees->seen, 0, trees->subscriptions * sizeof(int));
        for (int a = 0; a < ATTRIBUTES; a++)
            matches = count_path(trees, &trees->tree[a], values[p * ATTRIBUTES + a], found, matches);
        total += matches;
    }
    return total;
}

void trees_free(void *handle) {
    struct trees *trees = handle;
    for (int a = 0; a < ATTRIBUTES; a++) {
        free(trees->tree[a].points);
        free(trees->tree[a].start);
        free(trees->tree[a].ids);
    }
    free(trees->wanted);
    free(trees->seen);
    free(trees);
}
