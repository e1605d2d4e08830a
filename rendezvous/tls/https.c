/* SPDX-License-Identifier: MIT */
#include "rendezvous/tls/https.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "rendezvous/base/fd.h"
#include "rendezvous/base/net.h"
#include "rendezvous/base/version.h"
#include "rendezvous/tls/openssl.h"
#include "rendezvous/tls/tls.h"

#define HTTPS_PORT 443
#define HTTP_PORT 80
#define ADDRESSES_MAX 8
#define HEAD_SIZE 20480
#define STATUS_LINE_SIZE 64

static int url_parse(const char *text, const char *begin, struct https_url *url,
                     struct err *e)
{
    char place[HTTPS_NAME_MAX + 8];
    size_t length = strcspn(begin, "/");

    if (length == 0 || length >= sizeof(place) ||
        strlen(begin + length) > HTTPS_PATH_MAX ||
        begin[strspn(begin, "!#$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "[]_abcdefghijklmnopqrstuvwxyz~")] != '\0')
        return err_set(e, "\"%s\" is not http%s://HOST:PORT/PATH", text,
                       url->plain ? "" : "s");
    memcpy(place, begin, length);
    place[length] = '\0';
    snprintf(url->path, sizeof(url->path), "%s", begin[length] ? begin + length : "/");
    return net_split(place, url->plain ? HTTP_PORT : HTTPS_PORT, url->host,
                     sizeof(url->host), &url->port, e);
}

static const char *skip_scheme(const char *text, const char *scheme)
{
    return strncasecmp(text, scheme, strlen(scheme)) == 0 ? text + strlen(scheme)
                                                          : NULL;
}

int https_url_parse(const char *text, struct https_url *url, struct err *e)
{
    const char *begin = skip_scheme(text, "https://");

    url->plain = false;
    return begin ? url_parse(text, begin, url, e)
                 : err_set(e, "\"%s\" does not begin with https://", text);
}

int https_url_parse_any(const char *text, struct https_url *url, struct err *e)
{
    const char *begin = skip_scheme(text, "http://");

    if (!begin && !skip_scheme(text, "https://"))
        return err_set(e, "\"%s\" does not begin with https:// or http://", text);
    if (!begin)
        return https_url_parse(text, url, e);
    url->plain = true;
    return url_parse(text, begin, url, e);
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

/* The bytes that came, or <= 0. ssl NULL: without TLS. */
static ssize_t https_receive(SSL *ssl, int fd, char *buf, size_t size)
{
    return ssl ? openssl.SSL_read(ssl, buf, (int)size) : read(fd, buf, size);
}

static bool https_send_text(SSL *ssl, int fd, const char *text)
{
    size_t left = strlen(text);

    if (left == 0)
        return true;
    return ssl ? openssl.SSL_write(ssl, text, (int)left) > 0
               : fd_write_all(fd, text, &left) == 0;
}

static int https_fail(SSL *ssl, const char *what, struct err *e)
{
    if (ssl)
        return https_set_failure(ssl, what, e);
    return errno == EAGAIN || errno == 0 ? err_set(e, "%s: no answer in time", what)
                                         : err_set_errno(e, errno, "%s", what);
}

static int https_exchange(SSL *ssl, int fd, const char *head, const char *json,
                          struct err *e)
{
    char line[STATUS_LINE_SIZE] = "";
    ssize_t n = 1;
    size_t used = 0;
    int status;

    errno = 0;
    if (!https_send_text(ssl, fd, head) || !https_send_text(ssl, fd, json))
        return https_fail(ssl, "cannot send", e);
    while (n > 0 && used < STATUS_LINE_SIZE - 1 && !strchr(line, '\n')) {
        n = https_receive(ssl, fd, line + used, STATUS_LINE_SIZE - 1 - used);
        used += n > 0 ? (size_t)n : 0;
        line[used] = '\0';
    }
    if (sscanf(line, "HTTP/1.%*1d %3d", &status) == 1 && status >= 100)
        return status;
    if (used)
        return err_set(e, "its answer is not HTTP");
    return n == 0 && !ssl ? err_set(e, "it has closed the connection")
                          : https_fail(ssl, "cannot read the answer", e);
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
    if (authorities ? openssl.SSL_CTX_load_verify_locations(ctx, authorities, NULL) == 1
                    : openssl.SSL_CTX_set_default_verify_paths(ctx) == 1)
        return ctx;
    (void)err_set(e, "%s: %s", authorities ? authorities : "the system's authorities",
                  openssl_reason("no certificate in it"));
    openssl.SSL_CTX_free(ctx);
    return NULL;
}

static int https_send_secured(int fd, const struct https_url *url,
                              const struct https_request *r, const char *head,
                              struct err *e)
{
    SSL_CTX *ctx = https_context(r->authorities, e);
    SSL *ssl = ctx ? openssl.SSL_new(ctx) : NULL;
    int status = -1;

    if (ssl && openssl.SSL_set_fd(ssl, fd) == 1) {
        openssl.SSL_set_connect_state(ssl);
        openssl.ERR_clear_error();
        if (https_expect_host(ssl, url->host, e) == 0)
            status = openssl.SSL_do_handshake(ssl) == 1
                         ? https_exchange(ssl, fd, head, r->json ? r->json : "", e)
                         : https_set_failure(ssl, "the TLS handshake failed", e);
    }
    openssl.SSL_free(ssl);
    if (ctx)
        openssl.SSL_CTX_free(ctx);
    return status;
}

static int https_write_head(const struct https_url *url, const struct https_request *r,
                            char *head)
{
    bool has_brackets = strchr(url->host, ':') != NULL;
    char port[8] = "", body[80] = "";

    if (url->port != (url->plain ? HTTP_PORT : HTTPS_PORT))
        snprintf(port, sizeof(port), ":%u", url->port);
    if (r->json)
        snprintf(body, sizeof(body),
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(r->json));
    return snprintf(head, HEAD_SIZE,
                    "%s %s HTTP/1.1\r\nHost: %s%s%s%s\r\nUser-Agent: crun/" CRUN_VERSION
                    "\r\n%s%s%s%sConnection: close\r\n\r\n",
                    r->json ? "POST" : "GET", url->path, has_brackets ? "[" : "",
                    url->host, has_brackets ? "]" : "", port,
                    r->token ? "Authorization: Bearer " : "", r->token ? r->token : "",
                    r->token ? "\r\n" : "", body);
}

int https_send(const struct https_url *url, const struct https_request *r,
               struct err *e)
{
    char head[HEAD_SIZE];
    int fd, status;

    if (!url->plain && tls_load(e) < 0)
        return -1;
    fd = https_write_head(url, r, head) < HEAD_SIZE
             ? https_dial(url, e)
             : err_set(e, "the token is too long");
    if (fd < 0)
        status = -1;
    else if (url->plain)
        status = https_exchange(NULL, fd, head, r->json ? r->json : "", e);
    else
        status = https_send_secured(fd, url, r, head, e);
    explicit_bzero(head, sizeof(head));
    if (fd >= 0)
        close(fd);
    return status;
}

int https_read_token(const char *path, char token[HTTPS_TOKEN_SIZE], struct err *e)
{
    FILE *f = fopen(path, "re");
    size_t n;

    if (!f)
        return err_set_errno(e, errno, "%s", path);
    setvbuf(f, NULL, _IONBF, 0); /* no copy stays in memory */
    n = fread(token, 1, HTTPS_TOKEN_SIZE - 1, f);
    fclose(f);
    while (n > 0 && isspace((unsigned char)token[n - 1]))
        n--;
    token[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!isgraph((unsigned char)token[i]))
            return err_set(e, "%s has more than a token", path);
    return n > 0 ? 0 : err_set(e, "%s is empty", path);
}
