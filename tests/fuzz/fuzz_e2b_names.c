/* What gateways and control read out of foreign names: ids, hosts, templates, routes, keys. */
#include <stdlib.h>

#include "e2b/errors.h"
#include "e2b/hosts.h"
#include "e2b/names.h"
#include "e2b/routes.h"
#include "e2b/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(8u << 20);
    struct slice s = slice_of(data, size);
    char id[SANDBOX_ID_SIZE], again[SANDBOX_ID_SIZE];
    struct template_ref ref;
    struct route_match match;
    uint16_t port;

    if (sandbox_id_parse(s, id) &&
        (!sandbox_id_parse(slice_str(id), again) || strcmp(id, again) != 0))
        abort();
    (void)uuid_is_valid(s);
    (void)api_key_is_valid(s);
    (void)host_is_valid(s);
    (void)host_is_loopback(s);
    (void)host_is_in_domain(s, "sbx.test");
    if (host_parse_sandbox(s, "sbx.test", &port, id) == HOST_SANDBOX && port == 0)
        abort();
    if (!template_ref_parse(s, &ref) && ref.alias[0] == '\0')
        abort();
    route_find(SLICE_LIT("GET"), s, &match);
    (void)route_is_control(s);
    if (size < (1u << 20) && json_string_put(&b, s) != BUF_OK)
        abort();
    return 0;
}
