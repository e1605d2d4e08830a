/* SPDX-License-Identifier: MIT */
#include "rendezvous/tls/https.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "rendezvous/base/net.h"
#include "rendezvous/tls/openssl.h"
#include "rendezvous/tls/tls.h"

#define HTTPS_PORT 443
#define ADDRESSES_MAX 8
#define HEAD_SIZE 20480
#define STATUS_LINE_SIZE 64

int https_url_parse(const char *text, struct https_url *url, struct err *e)
{
    static const char scheme[] = "https://";
    char place[HTTPS_NAME_MAX + 8];
    const char *begin = text + sizeof(scheme) - 1;
    size_t length;

    if (strncasecmp(text, scheme, sizeof(scheme) - 1) != 0)
        return err_set(e, "\"%s\" does not begin with https://", text);
    length = strcspn(begin, "/");
    if (length == 0 || length >= sizeof(place) ||
        strlen(begin + length) > HTTPS_PATH_MAX ||
        begin[strspn(begin, "!#$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "[]_abcdefghijklmnopqrstuvwxyz~")] != '\0')
        return err_set(e, "\"%s\" is not https://HOST:PORT/PATH", text);
    memcpy(place, begin, length);
    place[length] = '\0';
    snprintf(url->path, sizeof(url->path), "%s", begin[length] ? begin + length : "/");
    return net_split(place, HTTPS_PORT, url->host, sizeof(url->host), &url->port, e);
}

/* A blocking socket with a time limit for each of its calls. */
static int https_dial_address(const struct net_addr *addr, struct err *e)
{
    struct timeval patience = { .tv_sec = HTTPS_PATIENCE_MS / 1000 };
    int fd = net_connect(addr, e), error = ETIMEDOUT;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    socklen_t size = sizeof(error);

    if (fd < 0)
        return -1;
    if (poll(&p, 1, HTTPS_PATIENCE_MS) == 1)
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0)
        return fd;
    close(fd);
    return err_set_errno(e, error, "cannot connect");
}

static int https_dial(const struct https_url *url, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    size_t count;
    int fd = -1;

    if (net_resolve(url->host, url->port, list, ADDRESSES_MAX, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count && fd < 0; i++)
        fd = https_dial_address(&list[i], e);
    return fd;
}

static int https_expect_host(SSL *ssl, const char *host, struct err *e)
{
    struct net_addr number;
    struct err none;

    if (net_parse_host(host, 0, &number, &none) == 0)
        return openssl.X509_VERIFY_PARAM_set1_ip_asc(openssl.SSL_get0_param(ssl),
                                                     host) == 1
                   ? 0
                   : err_set(e, "out of memory");
    if (openssl.SSL_set1_host(ssl, host) != 1)
        return err_set(e, "out of memory");
    (void)openssl.SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                           (void *)(uintptr_t)host);
    return 0;
}

static int https_set_failure(SSL *ssl, const char *what, struct err *e)
{
    long verdict = openssl.SSL_get_verify_result(ssl);

    if (verdict != X509_V_OK)
        return err_set(e, "its certificate is not accepted: %s",
                       openssl.X509_verify_cert_error_string(verdict));
    return err_set(e, "%s: %s", what, openssl_reason("no answer in time"));
}

static int https_exchange(SSL *ssl, const char *head, const char *json, struct err *e)
{
    char line[STATUS_LINE_SIZE] = "";
    int used = 0, n = 1, status;

    openssl.ERR_clear_error();
    if (openssl.SSL_do_handshake(ssl) != 1)
        return https_set_failure(ssl, "the TLS handshake failed", e);
    if (openssl.SSL_write(ssl, head, (int)strlen(head)) <= 0 ||
        openssl.SSL_write(ssl, json, (int)strlen(json)) <= 0)
        return https_set_failure(ssl, "cannot send", e);
    while (n > 0 && used < STATUS_LINE_SIZE - 1 && !strchr(line, '\n')) {
        n = openssl.SSL_read(ssl, line + used, STATUS_LINE_SIZE - 1 - used);
        used += n > 0 ? n : 0;
        line[used] = '\0';
    }
    if (sscanf(line, "HTTP/1.%*1d %3d", &status) == 1)
        return status;
    return used ? err_set(e, "its answer is not HTTP")
                : https_set_failure(ssl, "cannot read the answer", e);
}

static SSL_CTX *https_context(const char *authorities, struct err *e)
{
    SSL_CTX *ctx = openssl.SSL_CTX_new(openssl.TLS_client_method());

    if (!ctx) {
        (void)err_set(e, "out of memory");
        return NULL;
    }
    (void)openssl.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION,
                               NULL);
    openssl.SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (openssl.SSL_CTX_load_verify_locations(ctx, authorities, NULL) == 1)
        return ctx;
    (void)err_set(e, "%s: %s", authorities, openssl_reason("no certificate in it"));
    openssl.SSL_CTX_free(ctx);
    return NULL;
}

static int https_post_on(int fd, const struct https_url *url, const char *authorities,
                         const char *head, const char *json, struct err *e)
{
    SSL_CTX *ctx = https_context(authorities, e);
    SSL *ssl = ctx ? openssl.SSL_new(ctx) : NULL;
    int status = -1;

    if (ssl && openssl.SSL_set_fd(ssl, fd) == 1) {
        openssl.SSL_set_connect_state(ssl);
        if (https_expect_host(ssl, url->host, e) == 0)
            status = https_exchange(ssl, head, json, e);
    }
    openssl.SSL_free(ssl);
    if (ctx)
        openssl.SSL_CTX_free(ctx);
    return status;
}

int https_post(const struct https_url *url, const char *authorities, const char *token,
               const char *json, struct err *e)
{
    const char *bracket = strchr(url->host, ':') ? "[" : "";
    char head[HEAD_SIZE];
    int fd, size, status;

    if (tls_load(e) < 0)
        return -1;
    size = snprintf(head, sizeof(head),
                    "POST %s HTTP/1.1\r\nHost: %s%s%s:%u\r\n"
                    "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                    "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                    url->path, bracket, url->host, *bracket ? "]" : "", url->port,
                    token, strlen(json));
    fd = size < HEAD_SIZE ? https_dial(url, e) : err_set(e, "the token is too long");
    status = fd < 0 ? -1 : https_post_on(fd, url, authorities, head, json, e);
    explicit_bzero(head, sizeof(head));
    if (fd >= 0)
        close(fd);
    return status;
}
