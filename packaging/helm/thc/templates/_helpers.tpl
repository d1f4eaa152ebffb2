{{- define "thc.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "thc.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "thc.labels" -}}
{{ include "thc.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "thc.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* What all pods have: no token, no root. */}}
{{- define "thc.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "thc.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: ["ALL"]}
{{- end }}

{{/* The name of a Secret of certificates: dict "root" $ "of" "controller". */}}
{{- define "thc.secret" -}}
{{- get .root.Values.tls (printf "%sSecret" .of) | default (printf "%s-%s-tls" (include "thc.name" .root) .of) -}}
{{- end }}

{{/* A value of a TOML file. A number of YAML is a float here, and an integer if it has no fraction. */}}
{{- define "thc.toml" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s = %s" $key (include "thc.toml" $value)) }}{{ end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $values := list -}}
{{- range . }}{{ $values = append $values (include "thc.toml" .) }}{{ end -}}
[{{ join ", " $values }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* What cannot be: each with the way out. */}}
{{- define "thc.check" -}}
{{- $c := .Values.controller -}}
{{- if $c.enabled -}}
{{- if not (concat .Values.ps.servers $c.targets) -}}
{{- fail "the controller has no target: list servers in ps.servers or switches in controller.targets, or set controller.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- range $place, $server := .Values.ps.servers -}}
{{- range $other := slice $.Values.ps.servers (add1 $place) -}}
{{- if eq $server.name $other.name }}{{ fail (printf "ps.servers has two servers named %s: each target has a name of its own" $server.name) }}{{ end -}}
{{- if eq $server.node $other.node }}{{ fail (printf "ps.servers has %s and %s on node %s, where they would want the same ports: one thc-ps on a node" $server.name $other.name $server.node) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
