// Package config reads the settings of every verb of the headrace binary, from
// flags, else the environment, else one YAML file, else defaults, and validates
// them once. A setting has one name: `session_ttl` in the file is
// `--session-ttl` as a flag and HEADRACE_SESSION_TTL in the environment (one
// exception: `socket` is HEADRACE_AGENT, which trainers read too).
//
// Errors name where a value came from, the setting, the value, and the reason:
//
//	headrace.yaml:3: log_level: "loud": not one of debug, info, warn, error
//
//	settings.go  the table: every setting, its default and its check
//	load.go      the order of precedence
//	file.go      the YAML file, with line numbers
package config
