//! The keys of `undersign.toml`.

use super::Kind::{Duration, Flag, List, Secret, Secrets, Table, Tables, Text, Texts, Whole};
use super::{Section, defaulted, optional, required};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "",
        about: "The server's file. Relative paths in it are relative to the directory it is in.",
        keys: &[
            optional("server", Table("server"), "", "where undersign listens, and what it is called"),
            required("database", Table("database"), "", "the Postgres that holds everything"),
            required(
                "token_keys",
                List("token_keys[]"),
                "",
                "the keys that sign tokens: the first signs, all verify",
            ),
            optional(
                "slack",
                Tables("slack.*"),
                "",
                "one installation of one Slack app each; policy writes it as `slack:NAME/C…`",
            ),
            required(
                "tenants",
                Tables("tenants.*"),
                "",
                "who is kept apart from whom: each with policy, agents and upstreams of its own",
            ),
        ],
    },
    Section {
        name: "server",
        about: "",
        keys: &[
            defaulted(
                "agents_listen",
                Text,
                "\"127.0.0.1:8080\"",
                "\"127.0.0.1:8080\"",
                "address and port for agents: `/mcp` and `/mcp/{upstream}`",
            ),
            defaulted(
                "callbacks_listen",
                Text,
                "\"127.0.0.1:8081\"",
                "\"127.0.0.1:8081\"",
                "address and port for Slack: `/callbacks/slack/{app}`",
            ),
            defaulted(
                "admin_listen",
                Text,
                "\"127.0.0.1:9090\"",
                "\"127.0.0.1:9090\"",
                "address and port for operators: `/healthz`, `/readyz`; loopback only",
            ),
            defaulted(
                "public_url",
                Text,
                "\"http://127.0.0.1:8080\"",
                "\"https://undersign.example\"",
                "the address that agents are told",
            ),
            defaulted(
                "allowed_hosts",
                Texts,
                "[]",
                "[\"gate.example\"]",
                "`Host` names besides the listen addresses and `public_url`'s host",
            ),
            defaulted(
                "allowed_origins",
                Texts,
                "[]",
                "[\"https://app.example\"]",
                "`Origin`s of pages in browsers that may ask",
            ),
            defaulted(
                "trusted_proxies",
                Texts,
                "[]",
                "[\"10.0.0.7\", \"10.1.0.0/16\"]",
                "proxies in front of the listeners, whose `X-Forwarded-For` is believed",
            ),
            defaulted(
                "hold",
                Duration,
                "\"25s\"",
                "\"25s\"",
                "how long a first gated call waits for a quick decision, 0s to 50s",
            ),
        ],
    },
    Section {
        name: "database",
        about: "",
        keys: &[
            required("url", Secret, "{ env = \"DATABASE_URL\" }", "`postgres://USER:PASSWORD@HOST/DATABASE`"),
            defaulted("max_connections", Whole, "16", "16", "connections of the pool, 2 to 1000"),
            defaulted(
                "migrate",
                Flag,
                "true",
                "true",
                "whether `serve` applies migrations; with false, run `undersign migrate` before a new version",
            ),
        ],
    },
    Section {
        name: "token_keys[]",
        about: "",
        keys: &[
            required("id", Text, "\"k1\"", "names the key in tokens: 1 to 32 letters, digits, '-' or '_'"),
            required(
                "secret",
                Secret,
                "{ file = \"secrets/k1\" }",
                "at least 32 random characters, as `openssl rand -hex 32` prints them",
            ),
        ],
    },
    Section {
        name: "slack.*",
        about: "The name has 1 to 32 characters a-z, 0-9, '-' and '_', and is part of the callback's address.",
        keys: &[
            required("team_id", Text, "\"T0123ABCD\"", "the workspace the app is installed in"),
            required("app_id", Text, "\"A0123ABCD\"", "the app, as its \"Basic Information\" page shows it"),
            optional("enterprise_id", Text, "\"E0123ABCD\"", "the organisation, on Enterprise Grid"),
            required(
                "signing_secret",
                Secrets,
                "{ env = \"SLACK_SIGNING_SECRET\" }",
                "the app's signing secret; a list of two while it is being changed",
            ),
            required(
                "bot_token",
                Secret,
                "{ env = \"SLACK_BOT_TOKEN\" }",
                "the token that the installation shows, `xoxb-…`",
            ),
            defaulted(
                "api_url",
                Text,
                "\"https://slack.com/api\"",
                "\"https://slack.com/api\"",
                "the Web API's base; elsewhere for tests only",
            ),
        ],
    },
    Section {
        name: "tenants.*",
        about: "The name has 1 to 64 letters, digits, '.', '-' and '_'.",
        keys: &[
            required(
                "policy",
                Text,
                "\"policy/acme\"",
                "the directory of its policy: every `*.toml` in it, one file for each team",
            ),
            required("agents", Tables("tenants.*.agents.*"), "", "who may call"),
            required("upstreams", Tables("tenants.*.upstreams.*"), "", "the MCP servers behind"),
        ],
    },
    Section {
        name: "tenants.*.agents.*",
        about: "The name is shown on cards: 1 to 64 letters, digits, '.', '-' and '_'.",
        keys: &[
            required(
                "key_sha256",
                Texts,
                "[\"64 hex digits\"]",
                "the hash that `undersign agent-key` prints with the key; two while the key is being changed",
            ),
            optional(
                "owner",
                Text,
                "\"ana\"",
                "the person of `[people]` it works for, who can't approve its calls where `separate_proposer` holds",
            ),
        ],
    },
    Section {
        name: "tenants.*.upstreams.*",
        about: "The name has 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end: agents see `NAME__tool`.",
        keys: &[
            required(
                "url",
                Text,
                "\"http://127.0.0.1:9001/mcp\"",
                "streamable HTTP endpoint: https, or http on this machine; no credentials, no link-local or metadata address, IPv4 in plain decimal",
            ),
            defaulted(
                "allow_insecure",
                Flag,
                "false",
                "true",
                "also plain http to another host; nothing else is loosened",
            ),
            defaulted(
                "headers",
                Table("tenants.*.upstreams.*.headers"),
                "{}",
                "{ Authorization = { env = \"SHOP_AUTHORIZATION\" } }",
                "sent with every request",
            ),
            defaulted("timeout", Duration, "\"30s\"", "\"30s\"", "how long one call may take, 1s to 5m"),
            optional(
                "environment",
                Text,
                "\"production\"",
                "shown on every card, bound, and `environment` in conditions",
            ),
        ],
    },
    Section {
        name: "tenants.*.upstreams.*.headers",
        about: "",
        keys: &[optional(
            "*",
            Secret,
            "{ env = \"SHOP_AUTHORIZATION\" }",
            "the value of the header of this name; not one that the protocol gives a meaning",
        )],
    },
];
