{{- define "meshctl.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "meshctl.labels" -}}
app.kubernetes.io/name: meshctl
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: meshctl
{{- end -}}

{{- define "meshctl.selector" -}}
app.kubernetes.io/name: meshctl
app.kubernetes.io/component: controller
{{- end -}}
