//! Which test proves which case of the threat model. A listed case whose test is gone, and a case of this version that
//! no row names, fails here; later work adds rows.

/// Case, test file, test function.
const TABLE: &[(&str, &str, &str)] = &[
    ("B01", "binding", "b01_a_changed_amount_is_another_call"),
    ("B03", "binding", "b03_added_removed_null_and_reordered_values_are_other_calls"),
    ("B05", "binding", "b05_values_that_would_change_are_refused_before_anybody_is_asked"),
    ("B07", "binding", "b07_the_same_call_spelt_otherwise_is_the_same_call"),
    ("B08", "canonical", "b08_the_official_vectors_and_numbers_come_out_byte_for_byte"),
    ("B09", "binding", "b09_look_alikes_are_other_calls_and_the_card_says_what_is_hidden"),
    ("B10", "binding", "b10_text_that_parsers_read_differently_is_refused_and_never_a_fault_of_ours"),
    ("B12", "binding", "b12_a_gated_tool_that_owns_the_tokens_name_is_not_offered"),
    ("B13", "binding", "b13_a_token_for_one_tool_does_not_open_another"),
    ("B14", "binding", "b14_a_token_of_one_tenant_is_nothing_to_another"),
    ("B15", "binding", "b15_another_version_tag_is_refused_and_not_reinterpreted"),
    ("B16", "binding", "b16_a_changed_requirement_voids_the_approval_and_an_edit_elsewhere_does_not"),
    ("B17", "binding", "b17_the_digest_can_be_recomputed_from_the_audit_export"),
    ("B18", "layering", "serde_json_has_neither_preserve_order_nor_arbitrary_precision"),
    ("T01", "tokens", "t01_a_gated_call_without_a_token_is_parked_whatever_it_says"),
    ("T02", "tokens", "t02_a_missing_or_misshapen_token_opens_nothing"),
    ("T03", "tokens", "t03_forged_tokens_are_refused_without_a_write"),
    ("T04", "tokens", "t04_nothing_usable_is_told_before_the_approval"),
    ("T05", "tokens", "t05_a_token_works_once_and_the_outcome_can_be_read"),
    ("T06", "tokens", "t06_a_token_past_its_time_is_expired"),
    ("T07", "tokens", "t07_an_approval_after_the_deadline_counts_for_nothing"),
    ("T08", "tokens", "t08_another_agent_cannot_use_the_token_and_the_owner_still_can"),
    ("T14", "tokens", "t14_a_token_fetched_twice_executes_once"),
    ("S01", "slack_callbacks", "s01_a_missing_or_wrong_signature_is_401"),
    ("S02", "slack_callbacks", "s02_a_body_changed_after_signing_is_401"),
    ("S03", "slack_callbacks", "s03_a_stale_future_or_strange_timestamp_is_401"),
    ("S04", "slack_callbacks", "s04_an_authentic_form_of_another_shape_is_400"),
    ("S05", "slack_callbacks", "s05_other_kinds_of_interaction_are_ignored"),
    ("S06", "slack_callbacks", "s06_another_app_or_workspace_is_403"),
    ("S07", "slack_callbacks", "s07_the_legacy_token_proves_nothing"),
    ("S08", "slack_callbacks", "s08_a_hundred_replays_over_two_replicas_are_one_decision"),
    ("S09", "slack_callbacks", "s09_a_double_click_is_one_vote"),
    ("S10", "slack_callbacks", "s10_a_click_on_a_decided_action_changes_nothing_and_says_why"),
    ("S13", "slack_callbacks", "s13_a_handle_opens_its_own_message_and_no_other"),
    ("S14", "slack_callbacks", "s14_a_click_that_outruns_the_platforms_answer_counts"),
    ("S16", "slack_callbacks", "s16_response_url_is_never_called_nor_kept"),
    ("A01", "authority", "a01_a_channel_member_outside_the_group_decides_nothing"),
    ("A02", "authority", "a02_a_member_of_another_tools_group_decides_nothing"),
    ("A06", "authority", "a06_the_owner_cannot_approve_where_that_is_separated_and_can_where_it_is_not"),
    ("A08", "authority", "a08_the_owner_and_one_other_are_one_of_two"),
    ("A10", "authority", "a10_a_deny_before_the_retry_takes_the_approval_back"),
    ("P01", "preview", "p01_text_that_imitates_markup_stays_text"),
    ("P02", "preview", "p02_what_cannot_be_seen_is_shown_as_an_escape"),
    ("P03", "preview", "p03_a_long_value_is_shown_whole_or_refused"),
    ("P05", "preview", "p05_a_card_says_everything_that_a_decision_needs"),
    ("P06", "preview", "p06_what_an_upstream_claims_lowers_no_risk_and_is_not_said_in_our_name"),
    ("G08", "passing", "g08_what_is_not_offered_reaches_no_upstream"),
    ("G08", "passing", "g08_what_an_upstream_asks_by_itself_is_refused_and_the_agent_hears_nothing"),
    ("G12", "bypass", "g12_only_a_known_key_is_let_in_and_it_goes_no_further"),
    ("R05", "races", "r05_a_hundred_identical_calls_are_one_action_and_one_card"),
    ("X01", "execution", "x01_an_approval_that_runs_out_before_the_claim_executes_nothing"),
    ("X03", "execution", "x03_sixty_four_redemptions_over_two_replicas_are_one_execution"),
    ("X04", "execution", "x04_a_row_edited_after_the_approval_is_refused_with_an_alarm"),
    ("X09", "execution", "x09_errors_of_the_upstream_spend_the_token_and_are_not_tried_again"),
    ("X10", "execution", "x10_an_intent_has_one_idempotency_key_and_no_two_share_one"),
    ("A12", "authority", "a12_no_command_no_route_and_no_tool_approves"),
    ("L05", "audit", "l05_a_dump_holds_nothing_that_can_be_used"),
    ("O07", "audit_roles", "o07_the_services_role_serves_and_cannot_change_the_trail"),
    ("O07", "audit_roles", "o07_without_its_right_to_write_audit_rows_nothing_goes_on"),
    ("O07", "audit_tamper", "o07_whatever_a_superuser_does_to_audit_rows_is_found_where_it_was_done"),
    ("O07", "audit_tamper", "o07_a_chain_that_was_rewritten_whole_does_not_fit_a_checkpoint"),
    ("G02", "bypass", "g02_only_plain_json_is_read_and_it_is_gated_whatever_its_spelling"),
    ("G03", "bypass", "g03_another_spelling_is_another_name"),
    ("G04", "bypass", "g04_a_header_that_names_another_tool_is_a_mismatch"),
    ("G05", "bypass", "g05_there_is_no_other_way_in"),
    ("G05", "outside", "every_route_is_on_its_own_listener_alone"),
    ("G10", "bypass", "g10_another_host_or_origin_is_403"),
    ("G10", "bypass", "g10_a_listed_origin_may_ask_and_is_still_told_nothing_of_cors"),
    ("G13", "bypass", "g13_answers_never_cross"),
    ("N01", "network", "n01_a_body_beyond_the_limit_is_413_however_it_is_declared"),
    ("N01", "network", "n01_many_large_bodies_share_a_budget"),
    ("N02", "network", "n02_a_body_that_would_cost_much_is_refused_where_it_begins_to"),
    ("N03", "network", "n03_slow_headers_are_cut"),
    ("N03", "network", "n03_slow_bodies_are_cut"),
    ("N03", "network", "n03_slow_readers_and_idle_connections_are_cut"),
    ("N03", "network", "n03_connections_are_capped_and_come_back"),
    ("N03", "network", "n03_calls_are_answered_beside_five_thousand_dead_connections"),
    ("N04", "network", "n04_a_flood_without_signatures_reaches_no_table_and_stops_no_click"),
    ("N05", "http2", "n05_streams_that_are_reset_at_once_end_the_connection"),
    ("N05", "http2", "n05_a_connection_has_so_many_streams_at_once"),
    ("N05", "http2", "n05_headers_without_an_end_or_that_unfold_are_refused"),
    ("N05", "http2", "n05_http_1_has_bounded_headers_too"),
    ("N06", "outside", "n06_nothing_that_an_upstream_names_is_fetched"),
    ("L03", "layering", "secrets_are_compared_in_constant_time"),
    ("L04", "outside", "l04_what_is_not_yours_is_not_there"),
    ("L04", "outside", "l04_every_key_that_does_not_open_is_told_the_same"),
    ("L06", "outside", "l06_health_tells_nothing_of_tenants_whatever_agents_ask_for"),
    ("N07", "operators", "n07_an_upstream_is_where_its_address_says_and_not_where_secrets_hide"),
    ("O01", "operators", "o01_a_signing_secret_that_is_none_and_a_gated_tool_without_a_chat_are_refused"),
    ("O02", "operators", "o02_approvers_that_are_nobody_or_everybody_or_too_few_are_refused"),
    (
        "O03",
        "operators",
        "o03_unknown_keys_and_names_that_are_there_twice_are_refused_and_idle_rules_are_told",
    ),
    ("O04", "operators", "o04_a_public_address_without_agents_and_open_files_are_refused"),
    ("O05", "operators", "o05_a_threshold_has_one_place"),
    ("O06", "operators", "o06_times_are_within_limits_and_ten_minutes_where_nothing_is_said"),
    ("O09", "operators", "o09_the_program_has_no_switch_for_tests_and_check_prints_the_policy_in_force"),
    ("T10", "limits", "t10_twenty_wrong_tokens_throttle_that_agent_and_touch_nobody_else"),
    ("T11", "waiting", "t11_a_hold_ends_as_pending_and_chat_decides_all_the_same"),
    ("R01", "limits", "r01_a_denied_call_stays_denied_and_asks_nobody"),
    ("R03", "limits", "r03_a_materially_different_proposal_after_a_denial_is_asked_for"),
    ("R04", "limits", "r04_a_hundred_different_calls_are_five_cards_and_the_rest_is_rate_limited"),
    ("R06", "limits", "r06_three_denials_pause_the_agent_and_somebody_is_told"),
    ("R07", "limits", "r07_a_flood_goes_to_a_channel_one_card_a_second_with_turns_among_agents"),
    ("G09", "reload", "g09_a_bad_file_leaves_the_old_policy_in_force_and_shows_on_readyz"),
    ("A03", "authority", "a03_a_removed_approver_is_refused_within_a_minute_though_the_cache_was_warm"),
    ("A03", "authority", "a03_a_platform_that_cannot_be_asked_closes_the_door"),
    ("A05", "authority", "a05_a_disabled_or_emptied_user_group_is_nobody_and_not_everyone"),
    ("A09", "races", "a09_a_thousand_approve_and_deny_races_end_in_one_state_each"),
    ("A11", "authority", "a11_one_approve_and_one_deny_on_a_count_of_two_is_denied"),
    ("P08", "preview", "p08_approve_and_deny_are_equals_and_the_effect_is_named_above_them"),
    ("P09", "preview", "p09_making_a_preview_calls_nothing_upstream"),
    ("O08", "storage", "o08_whatever_is_asked_with_another_tenants_ids_is_nothing"),
    ("L01", "leaks", "l01_no_secret_and_no_argument_is_in_logs_errors_or_answers"),
    ("tool_changed", "execution", "a_tool_that_changed_after_the_approval_is_not_called"),
];

/// The cases that this version must prove.
const REQUIRED: &str = "B01 B03 B05 B07 B08 B09 B10 B12 B13 B14 B15 B16 B17 B18 T01 T02 T03 T04 T05 T06 T07 T08 T10 T14 \
    S01 S02 S03 S04 S05 S06 S07 S08 S09 S10 S13 S14 S16 A01 A02 A03 A05 A06 A08 A09 A10 A11 A12 P01 P02 P03 P05 P06 P08 \
    P09 G02 G03 G04 G05 G08 G09 G10 G12 G13 R01 R03 R04 R05 R06 R07 N01 N02 N03 N04 N05 N06 N07 O01 O02 O03 O04 O05 O06 \
    O07 O08 O09 L01 L03 L04 L05 L06 X01 X03 X04 X09 X10 tool_changed";

#[test]
fn every_required_case_has_a_test_and_every_row_is_true() {
    for case in REQUIRED.split_whitespace() {
        assert!(TABLE.iter().any(|(listed, ..)| *listed == case), "no test is listed for {case}");
    }
    for (case, file, function) in TABLE {
        let path = format!("{}/tests/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{case}: {path}: {error}"));
        let declared = source.lines().position(|line| {
            line.strip_prefix("async fn ")
                .or(line.strip_prefix("fn "))
                .is_some_and(|rest| rest.starts_with(&format!("{function}(")))
        });
        let at = declared.unwrap_or_else(|| panic!("{case}: {file}.rs has no test {function}"));
        let attribute = source.lines().nth(at - 1).unwrap_or_default();
        assert!(
            attribute == "#[tokio::test]" || attribute == "#[test]",
            "{case}: {function} is no test: {attribute}"
        );
    }
}
