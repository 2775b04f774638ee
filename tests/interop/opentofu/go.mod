// Gets OpenTofu, the free fork of Terraform, as a module; see docs/interop.md.
module remuda/interop/opentofu

go 1.26

require github.com/opentofu/opentofu v1.10.10

// As in OpenTofu's own go.mod.
replace github.com/hashicorp/hcl/v2 v2.20.1 => github.com/opentofu/hcl/v2 v2.20.2-0.20251021132045-587d123c2828
