//! The keys of a team's policy file.

use super::Kind::{Duration, Flag, List, Number, OneOf, Table, Tables, Text, Texts, Whole};
use super::{Section, defaulted, optional, required};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "",
        about: "A team's file. People, groups, thresholds and rules of all files of a tenant are one policy; a name is defined once.",
        keys: &[
            optional("thresholds", Table("thresholds"), "", "numbers that conditions and previews refer to"),
            optional("people", Tables("people.*"), "", "who is who; the name may not contain ':' or '/'"),
            optional("groups", Tables("groups.*"), "", "who may approve"),
            optional(
                "limits",
                Table("limits"),
                "",
                "how much agents may ask of people; each key in one file of the tenant",
            ),
            optional(
                "rules",
                List("rules[]"),
                "",
                "what happens to calls; all that match are taken together, and the strictest wins",
            ),
        ],
    },
    Section {
        name: "thresholds",
        about: "",
        keys: &[optional("*", Number, "5000", "a number; its name has letters, digits and '_'")],
    },
    Section {
        name: "people.*",
        about: "One person, whatever accounts they have.",
        keys: &[required("slack", Texts, "[\"main/U0ANA\"]", "accounts, as installation/member id")],
    },
    Section {
        name: "groups.*",
        about: "At least one of the two must name somebody.",
        keys: &[
            optional("people", Texts, "[\"ana\", \"ben\"]", "names of `[people]`"),
            optional(
                "slack_usergroups",
                Texts,
                "[\"main/S0PAY\"]",
                "Slack user groups, as installation/id; asked at the press and again before the execution",
            ),
        ],
    },
    Section {
        name: "rules[]",
        about: "The keys after `when` and `decision` are for `decision = \"require_approval\"` alone.",
        keys: &[
            required(
                "name",
                Text,
                "\"large-refunds\"",
                "unique over all files of the tenant; shown on cards",
            ),
            required(
                "tools",
                Texts,
                "[\"shop/refund_order\"]",
                "globs over upstream/tool; `*` stands for any text without '/'",
            ),
            optional(
                "when",
                Text,
                "\"args.amount_cents > thresholds.refund_auto\"",
                "a CEL condition over args, thresholds, agent, tenant, tool and environment; where it can't be evaluated it counts against the call",
            ),
            required(
                "decision",
                OneOf(&["allow", "require_approval", "deny"]),
                "\"require_approval\"",
                "what happens to calls that match",
            ),
            defaulted(
                "risk",
                OneOf(&["medium", "high"]),
                "\"high\"",
                "\"high\"",
                "shown on the card; the highest of all matching rules counts",
            ),
            required(
                "approvers",
                List("rules[].approvers[]"),
                "[{ group = \"payments\", count = 1 }]",
                "who must approve: every entry, by different people",
            ),
            defaulted(
                "separate_proposer",
                Flag,
                "true",
                "true",
                "whether the agent's owner is kept from approving",
            ),
            required(
                "post_to",
                Texts,
                "[\"slack:main/C0PAY\"]",
                "the channels of the card, as slack:installation/channel id",
            ),
            defaulted(
                "expires",
                Duration,
                "\"10m\"",
                "\"10m\"",
                "time to decide, from the call on: 10s to 24h",
            ),
            defaulted(
                "redeem_within",
                Duration,
                "\"10m\"",
                "\"10m\"",
                "time to repeat the call, from the approval on: 1s to 1h",
            ),
            optional("preview", Table("rules[].preview"), "", "what people read above the arguments"),
            optional(
                "cosmetic",
                Table("rules[].cosmetic"),
                "",
                "what makes a call no other call for the memory of denials",
            ),
        ],
    },
    Section {
        name: "rules[].approvers[]",
        about: "",
        keys: &[
            required("group", Text, "\"payments\"", "a name of `[groups]`"),
            defaulted("count", Whole, "1", "1", "how many of its people, 1 to 100"),
        ],
    },
    Section {
        name: "rules[].preview",
        about: "MiniJinja templates over args and thresholds; plain text. An absent value is shown as `(not given)`.",
        keys: &[
            optional(
                "title",
                Text,
                "\"Refund order {{ args.order_id }}\"",
                "the effect in one line; without it the tool's name",
            ),
            optional("target", Text, "\"order {{ args.order_id }}\"", "what is acted upon"),
            optional("effect", Text, "\"pays {{ args.amount_cents }} cents back\"", "what happens"),
            optional("impact", Text, "\"{{ args.amount_cents }} cents\"", "how much"),
            optional("data_out", Text, "\"nothing leaves the shop\"", "what leaves the house"),
            defaulted("reversible", Text, "\"not stated\"", "\"no\"", "whether it can be undone"),
        ],
    },
    Section {
        name: "rules[].cosmetic",
        about: "JSON Pointers into the arguments. Case, white space and invisible characters never make another call.",
        keys: &[
            defaulted("ignore", Texts, "[]", "[\"/note\"]", "values that carry no meaning"),
            defaulted("unordered", Texts, "[]", "[\"/recipients\"]", "lists whose order carries no meaning"),
        ],
    },
    Section {
        name: "limits",
        about: "",
        keys: &[
            defaulted(
                "asks_per_minute",
                Whole,
                "5",
                "5",
                "new approvals that an agent may ask for within a minute",
            ),
            defaulted("pending_per_agent", Whole, "20", "20", "actions of one agent that may wait at once"),
            optional("pending_per_owner", Whole, "40", "actions of one owner's agents that may wait at once"),
            optional(
                "pending_per_group",
                Whole,
                "50",
                "actions that may wait with one approver group at once",
            ),
            defaulted(
                "denials_pause",
                Table("limits.denials_pause"),
                "{ count = 3, within = \"10m\", pause_for = \"10m\" }",
                "{ count = 3, within = \"10m\", pause_for = \"10m\" }",
                "when denials pause an agent",
            ),
            defaulted(
                "denial_memory",
                Duration,
                "\"24h\"",
                "\"24h\"",
                "how long a denied call stays denied; at most 366 days, or `\"forever\"`",
            ),
            defaulted(
                "alert_to",
                Texts,
                "[]",
                "[\"slack:main/C0SEC\"]",
                "channels that are told of pauses, foreign tokens and unknown outcomes",
            ),
        ],
    },
    Section {
        name: "limits.denials_pause",
        about: "",
        keys: &[
            defaulted("count", Whole, "3", "3", "so many denials, 1 to 1000"),
            defaulted("within", Duration, "\"10m\"", "\"10m\"", "within this time"),
            defaulted("pause_for", Duration, "\"10m\"", "\"10m\"", "pause the agent for this long"),
        ],
    },
];
