/* A BE-tree: nodes hold a bucket of subscriptions; one that overflows is partitioned by the attribute
   that most of its subscriptions constrain, and what constrains it goes into a tree of halved ranges,
   each with a node of its own, in which the same happens again with the other attributes. */

#include <math.h>
#include <stdlib.h>

#include "matchers.h"

/* Subscriptions in a bucket before it is divided, and how often a range is halved. */
#define BUCKET 8
#define DEPTH 12
/* Every range of the workloads lies inside of this. */
#define LOWEST -1024.0
#define HIGHEST 3072.0

struct condition {
    int attribute;
    double low, high;
};

struct subscription {
    int id, count;
    struct condition conditions[];
};

struct range;

struct node {
    struct subscription **bucket;
    int count, room, limit;
    struct range *by_attribute[ATTRIBUTES];
};

struct range {
    double low, high;
    int depth;
    struct node node;
    struct range *left, *right;
};

static void insert(struct node *node, struct subscription *subscription, unsigned used);

static const struct condition *on(const struct subscription *subscription, int attribute) {
    for (int i = 0; i < subscription->count; i++)
        if (subscription->conditions[i].attribute == attribute) return &subscription->conditions[i];
    return NULL;
}

static struct range *new_range(double low, double high, int depth) {
    struct range *range = calloc(1, sizeof *range);
    range->low = low;
    range->high = high;
    range->depth = depth;
    range->node.limit = BUCKET;
    return range;
}

static void append(struct node *node, struct subscription *subscription) {
    if (node->count == node->room) {
        node->room = node->room ? 2 * node->room : 4;
        node->bucket = realloc(node->bucket, node->room * sizeof *node->bucket);
    }
    node->bucket[node->count++] = subscription;
}

/* The half of a range that a condition lies in, made if need be; NULL if it lies in both. */
static struct range *half(struct range *range, const struct condition *condition) {
    double middle = (range->low + range->high) / 2;
    if (range->depth == DEPTH) return NULL;
    if (condition->high < middle) {
        if (!range->left) range->left = new_range(range->low, middle, range->depth + 1);
        return range->left;
    }
    if (condition->low >= middle) {
        if (!range->right) range->right = new_range(middle, range->high, range->depth + 1);
        return range->right;
    }
    return NULL;
}

static void insert_by_range(struct range *range, int attribute, struct subscription *subscription,
                            unsigned used) {
    const struct condition *condition = on(subscription, attribute);
    struct range *inner;
    while ((inner = half(range, condition))) range = inner;
    insert(&range->node, subscription, used | 1u << attribute);
}

/* The attribute that most of a bucket constrains, of those that the way here has not used; or -1. */
static int best_attribute(const struct node *node, unsigned used) {
    int counts[ATTRIBUTES] = {0}, best = -1;
    for (int i = 0; i < node->count; i++)
        for (int c = 0; c < node->bucket[i]->count; c++)
            counts[node->bucket[i]->conditions[c].attribute]++;
    for (int a = 0; a < ATTRIBUTES; a++)
        if (!(used & 1u << a) && counts[a] && (best < 0 || counts[a] > counts[best])) best = a;
    return best;
}

static void partition(struct node *node, unsigned used) {
    int attribute = best_attribute(node, used), kept = 0, count = node->count;
    if (attribute < 0) {
        node->limit *= 2;
        return;
    }
    node->by_attribute[attribute] = new_range(LOWEST, HIGHEST, 0);
    for (int i = 0; i < count; i++) {
        struct subscription *subscription = node->bucket[i];
        if (on(subscription, attribute))
            insert_by_range(node->by_attribute[attribute], attribute, subscription, used);
        else node->bucket[kept++] = subscription;
    }
    node->count = kept;
}

static void insert(struct node *node, struct subscription *subscription, unsigned used) {
    for (int i = 0; i < subscription->count; i++) {
        int attribute = subscription->conditions[i].attribute;
        if (node->by_attribute[attribute]) {
            insert_by_range(node->by_attribute[attribute], attribute, subscription, used);
            return;
        }
    }
    append(node, subscription);
    if (node->count > node->limit) partition(node, used);
}

static long match_node(const struct node *node, const double *values, int *found, long matches) {
    for (int i = 0; i < node->count; i++) {
        const struct subscription *subscription = node->bucket[i];
        int c = 0;
        for (; c < subscription->count; c++) {
            const struct condition *condition = &subscription->conditions[c];
            double value = values[condition->attribute];
            if (!(condition->low <= value && value <= condition->high)) break;
        }
        if (c == subscription->count) found[matches++] = subscription->id;
    }
    for (int a = 0; a < ATTRIBUTES; a++)
        for (const struct range *range = node->by_attribute[a]; range;) {
            matches = match_node(&range->node, values, found, matches);
            range = values[a] < (range->low + range->high) / 2 ? range->left : range->right;
        }
    return matches;
}

void *betree_build(long n, const double *low, const double *high) {
    struct node *root = calloc(1, sizeof *root);
    root->limit = BUCKET;
    for (long i = 0; i < n; i++) {
        struct subscription *subscription =
            malloc(sizeof *subscription + ATTRIBUTES * sizeof(struct condition));
        subscription->id = (int)i;
        subscription->count = 0;
        for (int a = 0; a < ATTRIBUTES; a++)
            if (isfinite(low[i * ATTRIBUTES + a]))
                subscription->conditions[subscription->count++] = (struct condition){
                    a, low[i * ATTRIBUTES + a], high[i * ATTRIBUTES + a]};
        insert(root, subscription, 0);
    }
    return root;
}

long betree_match(void *handle, long publications, const double *values, int *found) {
    const struct node *root = handle;
    long total = 0;
    for (long p = 0; p < publications; p++)
        total += match_node(root, values + p * ATTRIBUTES, found, 0);
    return total;
}

static void free_range(struct range *range);

static void free_node(struct node *node) {
    for (int i = 0; i < node->count; i++) free(node->bucket[i]);
    free(node->bucket);
    for (int a = 0; a < ATTRIBUTES; a++) free_range(node->by_attribute[a]);
}

static void free_range(struct range *range) {
    if (!range) return;
    free_node(&range->node);
    free_range(range->left);
    free_range(range->right);
    free(range);
}

void betree_free(void *handle) {
    free_node(handle);
    free(handle);
}
