"""Commands that manage what a cell stores: variables, schedules, tokens, projects, groups, users."""
